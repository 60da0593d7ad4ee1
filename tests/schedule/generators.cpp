// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/helpers.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Gpipe, RunsAllForwardsThenAllBackwardsAscending) {
  const Schedule schedule = gpipe({.pipeline = 2, .virtual_stages = 1, .micro_batches = 3});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0F2 0B0 0B1 0B2");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 1F2 1B0 1B1 1B2");
}

TEST(Gpipe, GoesBreadthFirstThroughVirtualStages) {
  const Schedule schedule = gpipe({.pipeline = 2, .virtual_stages = 2, .micro_batches = 2});

  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1");
}

TEST(Gpipe, RunsOneMicroBatch) {
  const Schedule schedule = gpipe({.pipeline = 2, .virtual_stages = 1, .micro_batches = 1});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0B0");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1B0");
}

TEST(OneFOneB, WarmsUpByTheRanksBehind) {
  const Schedule schedule = one_f_one_b({.pipeline = 3, .virtual_stages = 1, .micro_batches = 4});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
  EXPECT_EQ(row(schedule, Rank{2}), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
}

TEST(OneFOneB, RunsFewerMicroBatchesThanRanks) {
  const Schedule schedule = one_f_one_b({.pipeline = 4, .virtual_stages = 1, .micro_batches = 2});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(row(schedule, Rank{3}), "3F0 3B0 3F1 3B1");
}

TEST(Interleaved, TakesMicroBatchesInGroupsOfTheRanks) {
  const Schedule schedule = interleaved({.pipeline = 2, .virtual_stages = 2, .micro_batches = 4});

  // Rank 0 warms up with (v-1) p + 2 (p-1-r) = 4 forwards, rank 1 with 2.
  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
}

TEST(Interleaved, LeavesOutTheMicroBatchesThatAShortLastGroupLacks) {
  const Schedule schedule = interleaved({.pipeline = 2, .virtual_stages = 2, .micro_batches = 3});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 2F0 2F1 0F2 2B0 2B1 2F2 0B0 0B1 2B2 0B2");
}

TEST(Interleaved, WithOneVirtualStageIsOneFOneB) {
  const GeneratorOptions options{.pipeline = 3, .virtual_stages = 1, .micro_batches = 5};

  EXPECT_EQ(interleaved(options).actions, one_f_one_b(options).actions);
}

TEST(ForwardOnly, HoldsForwardsAlone) {
  const Schedule schedule = forward_only(dealt(2, 2), 3);

  EXPECT_TRUE(schedule.forward_only);
  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 2F0 2F1 0F2 2F2");
}

TEST(ForwardOnly, FollowsStagesThatAreDealtInAnyWay) {
  const PerStage<Rank> there_and_back{std::vector<Rank>{Rank{0}, Rank{1}, Rank{1}, Rank{0}}};

  const Schedule schedule = forward_only(there_and_back, 2);

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 3F0 3F1");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 2F0 1F1 2F1");
  EXPECT_TRUE(validate(complete(schedule, {})).empty());
}

TEST(ForwardOnly, IsInterleavedOrderWhereTheRanksDivideTheMicroBatches) {
  const Schedule schedule = forward_only(dealt(3, 2), 6);

  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 1F2 4F0 4F1 4F2 1F3 1F4 1F5 4F3 4F4 4F5");
}

TEST(ForwardOnly, RunsSlicesInOrderOnEveryStage) {
  const Schedule schedule = forward_only(dealt(2, 2), 2, 3);

  // Interleaved order: two units, as many as there are ranks, through one stage before the next.
  EXPECT_EQ(row(schedule, Rank{0}), "0F0.0 0F0.1 2F0.0 2F0.1 0F0.2 0F1.0 2F0.2 2F1.0 0F1.1 0F1.2 2F1.1 2F1.2");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0.0 1F0.1 3F0.0 3F0.1 1F0.2 1F1.0 3F0.2 3F1.0 1F1.1 1F1.2 3F1.1 3F1.2");
}

TEST(ForwardOnly, RunsEachSliceOnceAndInAnOrderThatIsValid) {
  for (const int p : {1, 2, 3}) {
    for (const int v : {1, 2, 3}) {
      for (const int n : {2, 3, 5}) {
        const Schedule schedule = forward_only(dealt(p, v), 3, n);

        for (const auto& list : schedule.actions) EXPECT_EQ(list.size(), static_cast<std::size_t>(v * 3 * n));
        EXPECT_EQ(texts(validate(complete(schedule, {}))), "");
      }
    }
  }
}

TEST(ForwardOnly, RefusesToRunNothing) {
  EXPECT_THROW(forward_only(PerStage<Rank>{}, 1), Error);
  EXPECT_THROW(forward_only(dealt(2, 1), 0), Error);
  EXPECT_THROW(forward_only(dealt(2, 1), 1, 0), Error);
}

/// How often the forward, and how often the backward or its two parts, of one stage and micro-batch stand in a list.
struct Passes {
  int forwards = 0;
  int inputs = 0;   ///< B or I
  int weights = 0;  ///< B or W
  friend bool operator==(const Passes&, const Passes&) = default;
};

TEST(EveryGenerator, RunsEachStageOnceForwardAndBackwardForEachMicroBatch) {
  for_each_generated([](const Schedule& schedule) {
    std::map<std::pair<Stage, MicroBatch>, Passes> passes;
    for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
      for (const Action& action : schedule.actions[rank]) {
        EXPECT_TRUE(is_within(schedule, action)) << describe(schedule);
        EXPECT_EQ(schedule.rank_of[action.stage], rank) << describe(schedule);
        Passes& counted = passes[{action.stage, action.micro_batch}];
        counted.forwards += action.op == Op::forward ? 1 : 0;
        counted.inputs += action.op == Op::backward || action.op == Op::backward_input ? 1 : 0;
        counted.weights += action.op == Op::backward || action.op == Op::backward_weight ? 1 : 0;
      }
    }

    const auto& shape = schedule.shape;
    EXPECT_EQ(passes.size(), static_cast<std::size_t>(shape.stages * shape.micro_batches)) << describe(schedule);
    const Passes expected = schedule.forward_only ? Passes{1, 0, 0} : Passes{1, 1, 1};
    for (const auto& [key, counted] : passes) {
      EXPECT_EQ(counted, expected) << to_text({Op::forward, key.first, key.second, Slice{0}}) << " in "
                                   << describe(schedule);
    }
  });
}

TEST(EveryGenerator, TakesTheMicroBatchesOfAStageInAscendingOrder) {
  for_each_generated([](const Schedule& schedule) {
    std::map<std::pair<Stage, Op>, std::int32_t> last;
    for (const auto& list : schedule.actions) {
      for (const Action& action : list) {
        // Only DualPipeV has both B and I of a stage; one order goes through both.
        const Op op = action.op == Op::backward_input ? Op::backward : action.op;
        const auto [before, is_first] = last.try_emplace({action.stage, op}, -1);
        EXPECT_GT(action.micro_batch.value(), before->second) << to_text(action) << " in " << describe(schedule);
        before->second = action.micro_batch.value();
      }
    }
  });
}

TEST(Generate, FindsEachKindByName) {
  EXPECT_EQ(schedule_kinds().size(), enum_names(ScheduleKind{}).size());
  for (const auto& [kind, name] : enum_names(ScheduleKind{})) {
    const KindLimits& limits = entry_of(kind).limits;
    const GeneratorOptions options{.pipeline = 1, .virtual_stages = limits.least_virtual, .micro_batches = 2};

    EXPECT_EQ(generate(name, options).shape.stages, limits.least_virtual) << name;
  }
}

TEST(Generate, PutsStagesWhereTheKindSays) {
  const std::map<std::string, std::vector<int>> ranks{
      {"interleaved", {0, 1, 2, 0, 1, 2}}, {"breadth_first", {0, 1, 2, 0, 1, 2}}, {"zb_v", {0, 1, 2, 2, 1, 0}},
      {"v_half", {0, 1, 2, 2, 1, 0}},      {"v_min", {0, 1, 2, 2, 1, 0}},         {"dualpipe_v", {0, 1, 2, 2, 1, 0}},
      {"hanayo", {0, 1, 2, 2, 1, 0}}};
  for (const auto& [kind, expected] : ranks) {
    const Schedule schedule = generate(kind, {.pipeline = 3, .virtual_stages = 2, .micro_batches = 3});

    for (const Stage stage : all<Stage>(6)) {
      EXPECT_EQ(schedule.rank_of[stage].value(), expected[static_cast<std::size_t>(stage.value())]) << kind;
    }
  }
}

TEST(Generate, SaysWhichVirtualStagesAKindHas) {
  const auto message = [](const std::string& kind, std::int32_t v) {
    return refusal_of_kind(kind, {.pipeline = 2, .virtual_stages = v, .micro_batches = 4});
  };

  EXPECT_THAT(message("zb_h1", 2),
              StartsWith("zb_h1 has 1 stage a rank, not 2; kinds that take 2: gpipe, interleaved"));
  EXPECT_THAT(message("v_half", 1), StartsWith("v_half has 2 stages a rank, not 1; kinds that take 1: gpipe, 1f1b"));
  EXPECT_THAT(message("hanayo", 3), StartsWith("hanayo has an even number of stages a rank, not 3"));
  EXPECT_EQ(message("hanayo", 4), "");
}

TEST(Generate, RefusesMoreRanksThanASquareOfThemAllows) {
  for (const std::string kind : {"zb_h1", "zb_v", "v_min", "dualpipe_v"}) {
    const std::int32_t v = kind == "zb_h1" ? 1 : 2;

    EXPECT_THAT(refusal_of_kind(kind, {.pipeline = 1'000'000, .virtual_stages = v, .micro_batches = 1}),
                HasSubstr("micro-batches 2000000 "))
        << kind;
  }
  EXPECT_THAT(refusal_of_kind("interleaved", {.pipeline = 1'000'000, .virtual_stages = 2, .micro_batches = 1}),
              HasSubstr("micro-batches 1000000 "));
}

TEST(Generate, RefusesWhatAKindHasNoUseFor) {
  EXPECT_THAT(refusal_of_kind("1f1b", {.slices = 2}),
              StartsWith("1f1b cuts no sequences, and 2 slices were asked for"));
  EXPECT_THAT(refusal_of_kind("gpipe", {.forwards_first = 3}), HasSubstr("leave out forwards_first"));
  EXPECT_THAT(refusal_of_kind("zb_h2", {.forward_virtual = 2}), HasSubstr("zb_h2 has one partition of the layers"));
}

TEST(Generate, RefusesAnUnknownKindAndListsTheKnown) {
  EXPECT_THAT(refusal_of_kind("zero-bubble", {}), HasSubstr("gpipe, 1f1b, interleaved"));
}

TEST(Generate, RefusesOneFOneBWithVirtualStagesAndPointsToInterleaved) {
  EXPECT_THAT(refusal_of_kind("1f1b", {.pipeline = 2, .virtual_stages = 2, .micro_batches = 4}),
              HasSubstr("interleaved"));
}

TEST(Generate, RefusesSizesBelowOneAndBeyondReason) {
  EXPECT_THAT(refusal_of_kind("gpipe", {.pipeline = 0}), HasSubstr("0 pipeline ranks"));
  EXPECT_THAT(refusal_of_kind("gpipe", {.virtual_stages = -1}), HasSubstr("-1 virtual stages"));
  EXPECT_THAT(refusal_of_kind("gpipe", {.micro_batches = 0}), HasSubstr("0 micro-batches"));
  EXPECT_THAT(
      refusal_of_kind("gpipe", {.pipeline = 2'000'000'000, .virtual_stages = 2, .micro_batches = 2'000'000'000}),
      HasSubstr("fewer micro-batches"));
  EXPECT_THAT(refusal_of_kind("interleaved", {.pipeline = 1, .virtual_stages = 2, .micro_batches = 2'147'483'647}),
              HasSubstr("fewer micro-batches"));
}

}  // namespace
}  // namespace penstock
