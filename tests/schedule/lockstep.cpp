// SPDX-License-Identifier: Apache-2.0
#include "schedule/lockstep.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/graph.hpp"
#include "schedule/helpers.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/weight_placement.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr ExchangeRule all_ranks{Exchange::global, ExchangeGrain::half};

Schedule exchanging(std::int32_t p, std::int32_t v, std::int32_t n, std::int32_t m, ExchangeRule rule = all_ranks) {
  return slimpipe({.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n, .exchange = rule});
}

std::vector<std::string> texts_of(const LockstepSlot& slot, const Schedule& schedule) {
  std::vector<std::string> result;
  for (const SlotMember& member : slot.members) result.push_back(to_text(member.action, schedule.shape.slices));
  return result;
}

TEST(Lockstep, IsEmptyWithoutAnExchange) {
  const Schedule schedule = slimpipe({.pipeline = 2, .micro_batches = 2, .slices = 4});

  EXPECT_THAT(Lockstep{schedule}.slots(), IsEmpty());
  EXPECT_EQ(Lockstep{schedule}.slot_of(Rank{0}, 0), nullptr);
}

TEST(Lockstep, PutsIntoASlotWhatRanksDidOneSlotAfterTheOther) {
  const Schedule schedule = exchanging(3, 1, 3, 2);
  const Lockstep lockstep{schedule};

  EXPECT_THAT(texts_of(*lockstep.slot_of(Rank{0}, 0), schedule), ElementsAre("0F0.0"));
  EXPECT_THAT(texts_of(*lockstep.slot_of(Rank{1}, 0), schedule), ElementsAre("0F0.1", "1F0.0"));
  EXPECT_THAT(texts_of(*lockstep.slot_of(Rank{2}, 1), schedule), ElementsAre("0F1.0", "1F0.2", "2F0.1"));
}

TEST(Lockstep, StartsBackwardsOnTheLastRank) {
  const Schedule schedule = exchanging(2, 1, 2, 1);
  const Lockstep lockstep{schedule};

  const auto slot = [&](Rank rank, const std::string& text) {
    return texts_of(*lockstep.slot_of(rank, static_cast<std::int32_t>(find(schedule, rank, text))), schedule);
  };

  EXPECT_THAT(slot(Rank{1}, "1B0.1"), ElementsAre("1B0.1"));
  EXPECT_THAT(slot(Rank{1}, "1B0.0"), ElementsAre("0B0.1", "1B0.0"));
  EXPECT_THAT(slot(Rank{0}, "0B0.0"), ElementsAre("0B0.0"));
}

TEST(Lockstep, LeavesWeightGradientsMessagesAndRecomputationOut) {
  CompletionOptions options;
  options.split_weight_gradients = true;
  options.recompute = PerStage<bool>{2, true};
  const Schedule schedule = complete(exchanging(2, 1, 2, 2), options);
  const Lockstep lockstep{schedule};

  for (const Rank rank : all<Rank>(2)) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(schedule.actions[rank].size()); ++i) {
      const Op op = schedule.actions[rank][static_cast<std::size_t>(i)].op;
      EXPECT_EQ(lockstep.slot_of(rank, i) != nullptr, op == Op::forward || op == Op::backward_input);
    }
  }
}

TEST(Lockstep, GroupsOnlyWhoSharesWithWhom) {
  const LockstepSlot slot{
      .members =
          {{Rank{0}, 0, {}}, {Rank{1}, 0, {}}, {Rank{2}, 0, {}}, {Rank{3}, 0, {}}, {Rank{4}, 0, {}}, {Rank{5}, 0, {}}},
      .shares = {{Rank{0}, Rank{3}, 0, 2}, {Rank{1}, Rank{2}, 0, 1}, {Rank{5}, Rank{3}, 0, 1}}};

  const auto groups = groups_of(slot);

  ASSERT_EQ(groups.size(), 2U);
  EXPECT_THAT(groups[0], ElementsAre(slot.members[0], slot.members[3], slot.members[5]));
  EXPECT_THAT(groups[1], ElementsAre(slot.members[1], slot.members[2]));
}

TEST(ExchangedAttention, ValidatesWithEveryPassAndRule) {
  for (const ExchangeRule rule : {all_ranks, ExchangeRule{Exchange::pairwise, ExchangeGrain::chunk}}) {
    for (const auto& [p, v, n, m] : {std::array{2, 1, 2, 1}, {2, 2, 4, 3}, {4, 1, 8, 2}, {4, 3, 4, 2}, {8, 2, 8, 2}}) {
      for (const bool splits : {false, true}) {
        CompletionOptions options;
        options.split_weight_gradients = splits;
        options.recompute = PerStage<bool>{p * v, splits};

        const auto findings = validate(complete(exchanging(p, v, n, m, rule), options));

        EXPECT_THAT(findings, IsEmpty()) << texts(findings);
      }
    }
  }
}

TEST(ExchangedAttention, TakesNoLongerInUnits) {
  for (const auto& [p, v, n, m] : {std::array{2, 1, 2, 2}, {4, 1, 8, 2}, {4, 3, 4, 2}, {8, 2, 8, 3}}) {
    const auto step_of = [](const Schedule& compute) {
      const Schedule schedule = add_communication(compute);
      const ScheduleIndex index{schedule};
      const DependenceGraph graph{index};
      const auto starts =
          earliest_starts(graph, [&](std::int32_t node) { return unit_duration(graph.action_of(node).action.op); });
      return *std::max_element(starts->begin(), starts->end());
    };

    EXPECT_EQ(step_of(exchanging(p, v, n, m)), step_of(exchanging(p, v, n, m, {})));
  }
}

TEST(ExchangedAttention, StartsWithItsPartners) {
  const Schedule schedule = add_communication(exchanging(2, 1, 4, 1));
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};
  const auto node_of = [&](Rank rank, const std::string& text) {
    return static_cast<std::size_t>(graph.node_of(rank, static_cast<std::int32_t>(find(schedule, rank, text))));
  };
  const auto late = node_of(Rank{1}, "1F0.0");

  // Stage 1's first forward lasts long: what comes after it on rank 1 is late, and so is rank 0's partner of it.
  const auto starts = earliest_starts(
      graph, [&](std::int32_t node) { return Seconds{static_cast<std::size_t>(node) == late ? 10.0 : 1.0}; });

  ASSERT_TRUE(starts);
  EXPECT_EQ((*starts)[node_of(Rank{0}, "0F0.3")], (*starts)[node_of(Rank{1}, "1F0.2")]);
  EXPECT_GT((*starts)[node_of(Rank{0}, "0F0.3")].value, 10);
}

TEST(ExchangedAttention, ShowsTheCycleOfPartnersInOppositeOrders) {
  Schedule schedule = exchanging(2, 1, 4, 1);
  schedule.actions[Rank{0}] = {};
  schedule.actions[Rank{1}] = {};
  // Forward slot 3 shares 0F0.3 with 1F0.2, backward slot 1 0B0.3 with 1B0.2. Rank 1 has them the other way round.
  for (const std::int32_t slice : {0, 1, 2, 3}) {
    schedule.actions[Rank{0}].push_back({Op::forward, Stage{0}, MicroBatch{0}, Slice{slice}});
    schedule.actions[Rank{1}].push_back({Op::forward, Stage{1}, MicroBatch{0}, Slice{slice}});
  }
  for (const std::int32_t slice : {3, 2, 1, 0}) {
    schedule.actions[Rank{0}].push_back({Op::backward, Stage{0}, MicroBatch{0}, Slice{slice}});
    schedule.actions[Rank{1}].push_back({Op::backward, Stage{1}, MicroBatch{0}, Slice{slice}});
  }
  move_before(schedule, Rank{1}, "1B0.2", "1F0.2");

  const auto findings = validate(add_communication(schedule));

  EXPECT_THAT(texts(findings), HasSubstr("waits for itself"));
  EXPECT_THAT(texts(findings), HasSubstr("takes part in the exchange of attention between rank 0's `0F0.3`"));
}

TEST(ExchangedAttention, KeepsItsPartnersWhereWeightGradientsArePlaced) {
  const Schedule compute = exchanging(4, 1, 8, 2);
  const auto prices = [](const ActionOnRank& node) { return unit_duration(node.action.op); };

  const Schedule placed = complete(place_weight_gradients(compute, prices, 4), {});
  const auto findings = validate(placed);

  EXPECT_EQ(placed.exchange, compute.exchange);
  EXPECT_THAT(findings, IsEmpty()) << texts(findings);
}

}  // namespace
}  // namespace penstock
