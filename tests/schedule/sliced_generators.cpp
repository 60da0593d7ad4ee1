// SPDX-License-Identifier: Apache-2.0
#include "schedule/sliced_generators.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/helpers.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

/// Calls visit(Schedule) with compute actions of every sliced kind over a grid of p, v, n, m.
template <class Visit>
void for_each_sliced(const Visit& visit) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int n : {1, 2, 3, 4, 8}) {
      for (const int m : {1, 2, 3, 4, 8}) {
        visit(seq1f1b({.pipeline = p, .micro_batches = m, .slices = n}));
        for (const int v : {1, 2, 3}) {
          const GeneratorOptions options{.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n};
          visit(terapipe(options));
          visit(seq1f1b_interleaved(options));
          visit(svpp(options));
          if (n % p == 0) visit(slimpipe(options));
        }
      }
    }
  }
}

TEST(Terapipe, RunsAllForwardsThenBackwardsFromTheLastSlice) {
  const Schedule schedule = terapipe({.pipeline = 2, .micro_batches = 2, .slices = 2});

  EXPECT_EQ(row(schedule, Rank{1}), "1F0.0 1F0.1 1F1.0 1F1.1 1B0.1 1B0.0 1B1.1 1B1.0");
}

TEST(Terapipe, GoesBreadthFirstThroughVirtualStages) {
  const Schedule schedule = terapipe({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1, .slices = 2});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0.0 0F0.1 1F0.0 1F0.1 1B0.1 1B0.0 0B0.1 0B0.0");
}

TEST(Seq1F1B, StartsABackwardWhenTheRanksBehindHaveAllSlices) {
  const Schedule schedule = seq1f1b({.pipeline = 2, .micro_batches = 2, .slices = 2});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0");
}

TEST(Seq1F1B, WithOneSliceIsOneFOneB) {
  const GeneratorOptions options{.pipeline = 4, .micro_batches = 6};

  EXPECT_EQ(seq1f1b(options).actions, one_f_one_b(options).actions);
}

TEST(Seq1F1BInterleaved, WithOneSliceIsInterleaved) {
  for (const int m : {1, 2, 4, 7, 8}) {
    const GeneratorOptions options{.pipeline = 4, .virtual_stages = 2, .micro_batches = m};

    EXPECT_EQ(seq1f1b_interleaved(options).actions, interleaved(options).actions) << m;
  }
}

TEST(Svpp, TakesWholeMicroBatchesInGroupsThatFillTheRanks) {
  // Two micro-batches of two slices fill three ranks: a group has four units.
  const Schedule schedule = svpp({.pipeline = 3, .virtual_stages = 2, .micro_batches = 2, .slices = 2});

  EXPECT_EQ(row(schedule, Rank{2}),
            "2F0.0 2F0.1 2F1.0 2F1.1 5F0.0 5F0.1 5B0.1 5F1.0 5B0.0 5F1.1 5B1.1 5B1.0 2B0.1 2B0.0 2B1.1 2B1.0");
}

TEST(Svpp, WithOneStageARankIsSeq1F1B) {
  for (const int n : {1, 2, 5, 8}) {
    const GeneratorOptions options{.pipeline = 4, .micro_batches = 3, .slices = n};

    EXPECT_EQ(svpp(options).actions, seq1f1b(options).actions) << n;
  }
}

TEST(Svpp, StartsWithAsManyForwardsAsAskedFor) {
  for (const int first : {16, 18, 20, 23}) {
    const Schedule schedule =
        svpp({.pipeline = 8, .virtual_stages = 2, .micro_batches = 4, .slices = 8, .forwards_first = first});

    int forwards = 0;
    while (schedule.actions[Rank{0}].at(static_cast<std::size_t>(forwards)).op == Op::forward) ++forwards;
    EXPECT_EQ(forwards, first);
  }
}

TEST(Svpp, TakesSmallerGroupsWhereTheForwardsAskedForAreTooFewForLargeOnes) {
  // Groups of two micro-batches need (v-1) 4 + 2 = 6 forwards before the last stage has a micro-batch.
  const Schedule schedule =
      svpp({.pipeline = 4, .virtual_stages = 2, .micro_batches = 4, .slices = 2, .forwards_first = 4});

  EXPECT_THAT(row(schedule, Rank{0}), testing::StartsWith("0F0.0 0F0.1 4F0.0 4F0.1 4B0.1 "));
}

TEST(Svpp, RefusesForwardsThatCannotComeFirst) {
  const GeneratorOptions options{.pipeline = 8, .virtual_stages = 2, .micro_batches = 8, .slices = 8};
  auto too_few = options;
  auto too_many = options;
  too_few.forwards_first = 15;
  too_many.forwards_first = 24;

  EXPECT_THAT(refusal_of_kind("svpp", too_few), HasSubstr("16 to 23 forwards before the first backward, not 15"));
  EXPECT_THAT(refusal_of_kind("svpp", too_few), HasSubstr("virtual x slices"));
  EXPECT_THAT(refusal_of_kind("svpp", too_many), HasSubstr("not 24: no rank waits for another"));
  EXPECT_THAT(refusal_of_kind("svpp", {.pipeline = 1, .micro_batches = 2, .slices = 6, .forwards_first = 5}),
              HasSubstr("takes 6 forwards before the first backward, not 5"));
}

TEST(Slimpipe, TakesSlicesInGroupsOfTheRanksAndTheReverseBack) {
  const Schedule schedule = slimpipe({.pipeline = 2, .virtual_stages = 2, .micro_batches = 1, .slices = 4});

  EXPECT_EQ(row(schedule, Rank{1}),
            "1F0.0 1F0.1 3F0.0 3F0.1 1F0.2 1F0.3 3F0.2 3F0.3 "
            "3B0.3 3B0.2 1B0.3 1B0.2 3B0.1 3B0.0 1B0.1 1B0.0");
}

TEST(Slimpipe, RefusesSlicesThatAreNoMultipleOfTheRanks) {
  EXPECT_THAT(refusal_of_kind("slimpipe", {.pipeline = 4, .micro_batches = 2, .slices = 6}),
              HasSubstr("6 slices cannot be dealt evenly to 4 ranks; use 4 or 8"));
  EXPECT_THAT(refusal_of_kind("slimpipe", {.pipeline = 4, .micro_batches = 2, .slices = 3}), HasSubstr("; use 4"));
}

TEST(SlicedKinds, AreFoundByName) {
  const GeneratorOptions options{.pipeline = 2, .micro_batches = 2, .slices = 4};

  for (const char* kind : {"terapipe", "seq1f1b", "seq1f1b_interleaved", "svpp", "slimpipe"}) {
    EXPECT_EQ(generate(kind, options).shape.slices, 4) << kind;
  }
}

TEST(SlicedKinds, AreTheOnesThatTakeSlices) {
  EXPECT_THAT(refusal_of_kind("1f1b", {.pipeline = 2, .micro_batches = 2, .slices = 4}), HasSubstr("seq1f1b"));
  EXPECT_THAT(refusal_of_kind("seq1f1b", {.pipeline = 2, .virtual_stages = 2}), HasSubstr("seq1f1b_interleaved"));
}

TEST(EverySlicedGenerator, RunsEachSliceOnceForwardAndOnceBackward) {
  for_each_sliced([](const Schedule& schedule) {
    std::set<Action> seen;
    std::size_t actions = 0;
    for (const auto& list : schedule.actions) {
      for (const Action& action : list) {
        EXPECT_TRUE(is_within(schedule, action)) << describe(schedule);
        seen.insert(action);
        ++actions;
      }
    }

    const auto& shape = schedule.shape;
    EXPECT_EQ(seen.size(), actions) << describe(schedule);
    EXPECT_EQ(static_cast<std::int32_t>(actions), 2 * shape.stages * shape.micro_batches * shape.slices)
        << describe(schedule);
  });
}

TEST(EverySlicedGenerator, IsValidWithRecomputeAndSplitBackwardsAndWithout) {
  for_each_sliced([](const Schedule& schedule) {
    for (const bool recompute : {false, true}) {
      for (const bool split : {false, true}) {
        CompletionOptions options;
        options.recompute = PerStage<bool>(schedule.shape.stages, recompute);
        options.split_weight_gradients = split;

        EXPECT_EQ(texts(validate(complete(schedule, options))), "") << describe(schedule);
      }
    }
  });
}

TEST(SvppWithFewerForwards, IsValidDownToTheFewest) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int n : {1, 2, 4, 8}) {
      for (const int v : {1, 2, 3}) {
        const int group = (p + n - 1) / n * n;
        for (int first = v * n; first <= (v - 1) * group + n + p - 1; ++first) {
          const Schedule schedule =
              svpp({.pipeline = p, .virtual_stages = v, .micro_batches = 3, .slices = n, .forwards_first = first});

          EXPECT_EQ(texts(validate(complete(schedule, {}))), "") << describe(schedule);
        }
      }
    }
  }
}

/// The slot of each compute action: 2 f for the forward of slot f of the header, 2 b + 1 for the backward of slot b.
std::map<Action, std::int64_t> lockstep_slots(const Schedule& schedule, std::int32_t v) {
  std::map<Action, std::int64_t> slots;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    std::int64_t forward = rank.value();
    std::int64_t backward = schedule.shape.slices * v - 1 + 2 * (schedule.shape.ranks - 1) - rank.value();
    for (const Action& action : schedule.actions[rank]) {
      slots[action] = action.op == Op::forward ? 2 * forward++ : 2 * backward++ + 1;
    }
  }
  return slots;
}

/// What the action needs on the compute lanes of all ranks.
std::vector<Action> compute_needs(const Schedule& schedule, const Action& action) {
  const auto& [op, stage, micro_batch, slice, part] = action;
  std::vector<Action> needs;
  if (op == Op::forward) {
    if (stage.value() > 0) needs.push_back({op, stage.previous(), micro_batch, slice});
    if (slice.value() > 0) needs.push_back({op, stage, micro_batch, slice.previous()});
    return needs;
  }
  needs.push_back({Op::forward, stage, micro_batch, slice});
  if (stage != schedule.last_stage()) needs.push_back({op, stage.next(), micro_batch, slice});
  if (slice.value() + 1 < schedule.shape.slices) needs.push_back({op, stage, micro_batch, slice.next()});
  return needs;
}

TEST(Slimpipe, CanRunInLockstep) {
  for (const auto& [p, v, n, m] :
       std::vector<std::array<int, 4>>{{2, 1, 2, 3}, {4, 2, 8, 2}, {8, 3, 8, 2}, {3, 2, 9, 4}}) {
    const Schedule schedule = slimpipe({.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n});

    const auto slots = lockstep_slots(schedule, v);

    for (const auto& list : schedule.actions) {
      for (std::size_t i = 1; i < list.size(); ++i) EXPECT_LT(slots.at(list[i - 1]), slots.at(list[i]));
    }
    for (const auto& [action, slot] : slots) {
      for (const Action& need : compute_needs(schedule, action)) {
        EXPECT_LT(slots.at(need), slot) << to_text(need, n) << " for " << to_text(action, n);
      }
    }
  }
}

}  // namespace
}  // namespace penstock
