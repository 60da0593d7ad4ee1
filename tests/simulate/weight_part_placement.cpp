// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients placed at the grain of single products. They are compared with whole ones placed by the same pass.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/plan.hpp"
#include "schedule/graph.hpp"
#include "schedule/passes.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/validator.hpp"
#include "schedule/weight_placement.hpp"
#include "simulate/helpers.hpp"
#include "simulate/simulate.hpp"

namespace penstock {
namespace {

Schedule in_parts(const Schedule& compute, std::uint8_t parts) {
  Schedule result = compute;
  result.weight_parts = PerStage<std::uint8_t>(compute.shape.stages, parts);
  return result;
}

/// Attention takes `attention` x (slice + 1/2) of F and twice as much of I; all else one unit in each of F, I and W,
/// which parts share equally.
Prices with_attention(double attention, std::uint8_t parts) {
  return [attention, parts](const ActionOnRank& node) {
    const Action& action = node.action;
    const double of_slice = attention * (action.slice.value() + 0.5);
    switch (action.op) {
      case Op::forward:
        return Seconds{1 + of_slice};
      case Op::backward_input:
        return Seconds{1 + 2 * of_slice};
      case Op::backward_weight:
        return Seconds{action.part == 0 ? 1.0 : 1.0 / parts};
      default:
        return unit_duration(action.op);
    }
  };
}

/// The step with Ws in `parts` placed; 1: whole ones.
Seconds placed_step(const Schedule& compute, double attention, std::uint8_t parts, std::int32_t limit) {
  const auto durations = with_attention(attention, parts);
  return step_of(place_weight_gradients(in_parts(compute, parts), durations, limit), durations);
}

TEST(PlaceWeightParts, IsValid) {
  for (const int v : {1, 2}) {
    for (const int n : {1, 3, 4}) {
      const Schedule schedule = svpp({.pipeline = 4, .virtual_stages = v, .micro_batches = 3, .slices = n});
      for (const std::uint8_t parts : {2, 7}) {
        for (const int limit : {1, 3, 1000}) {
          const Schedule placed = place_weight_gradients(in_parts(schedule, parts), with_attention(0.3, parts), limit);

          const auto findings = validate(complete(placed, {}));
          EXPECT_TRUE(findings.empty()) << placed.name << " limit " << limit << ": " << findings.front().text;
        }
      }
    }
  }
}

TEST(PlaceWeightParts, IsNeverLongerThanWithWholeOnes) {
  for (const double attention : {0.0, 0.05, 0.1, 0.3, 0.7}) {
    for (const std::uint8_t parts : {3, 7, 20}) {
      for (const int limit : {1, 4, 1000}) {
        const Schedule schedule = svpp({.pipeline = 8, .micro_batches = 4, .slices = 8});

        EXPECT_LE(placed_step(schedule, attention, parts, limit).value,
                  placed_step(schedule, attention, 1, limit).value + step_rounding)
            << "attention " << attention << ", " << int{parts} << " parts, limit " << limit;
      }
    }
  }
}

TEST(PlaceWeightParts, FillsWaitsThatAreShorterThanAWeightGradient) {
  // With attention of 5 % of a slice the waits of SVPP are fractions of a W. (From 20 % on all fit in as whole ones:
  // what is left waits for F and I alone.)
  for (const int v : {1, 2}) {
    const Schedule schedule = svpp({.pipeline = 8, .virtual_stages = v, .micro_batches = 4, .slices = 8});
    const Seconds beside = step_of(split_weight_gradients(schedule), with_attention(0.05, 1));
    const Seconds whole = placed_step(schedule, 0.05, 1, 1000);
    const Seconds parts = placed_step(schedule, 0.05, 7, 1000);

    RecordProperty(fmt::format("v{}", v), fmt::format("{} {} {}", beside.value, whole.value, parts.value));
    EXPECT_LT(parts.value, whole.value - step_rounding);
  }
}

TEST(PlaceWeightParts, PutsOtherActionsBetweenThePartsOfAWeightGradient) {
  const Schedule schedule = in_parts(svpp({.pipeline = 8, .virtual_stages = 2, .micro_batches = 4, .slices = 8}), 7);

  const Schedule placed = place_weight_gradients(schedule, with_attention(0.1, 7), 1000);

  for (const auto& list : placed.actions) {
    const auto is_torn = [](const Action& action, const Action& next) {
      return action.op == Op::backward_weight && action.part < 7 && next.op != Op::backward_weight;
    };
    EXPECT_NE(std::adjacent_find(list.begin(), list.end(), is_torn), list.end());
  }
}

TEST(PlaceWeightParts, NeverKeepsMoreOperandsThanTheLimit) {
  for (const int limit : {1, 2, 5}) {
    const Schedule schedule = in_parts(svpp({.pipeline = 4, .micro_batches = 4, .slices = 4}), 7);
    const Schedule placed = complete(place_weight_gradients(schedule, with_attention(0.3, 7), limit), {});

    for (const Rank rank : all<Rank>(placed.shape.ranks)) {
      EXPECT_LE(most_live(placed, rank, BufferKind::weight_operands), limit);
    }
  }
}

TEST(PlaceWeightParts, KeepsNoMoreBytesThanThereIsRoomFor) {
  // A unit keeps 3 bytes from F and 1 more from I, until the last of its parts.
  const Schedule schedule = in_parts(svpp({.pipeline = 8, .micro_batches = 4, .slices = 8}), 7);
  const auto stages = schedule.shape.stages;
  for (const std::int64_t bytes : {46, 50, 80}) {
    const WeightRoom room{PerRank<Bytes>(8, Bytes{bytes}), PerStage<Bytes>(stages, Bytes{3}),
                          PerStage<Bytes>(stages, Bytes{1})};

    const Schedule placed = place_weight_gradients(schedule, with_attention(0.1, 7), room);

    for (const auto& list : placed.actions) {
      std::int64_t kept = 0;
      for (const Action& action : list) {
        if (action.op == Op::forward) kept += 3;
        if (action.op == Op::backward_input) kept += 1;
        EXPECT_LE(kept, bytes);
        if (action.op == Op::backward_weight && action.part == 7) kept -= 4;
      }
      EXPECT_EQ(kept, 0);
    }
  }
}

// --- orders of a queue whose Ws are taken at run time

/// For so many units, of which each keeps 3 bytes from F and 1 more from I.
WeightRoom room_of_units(const Schedule& schedule, std::int64_t units) {
  return {PerRank<Bytes>(schedule.shape.ranks, Bytes{4 * units}), PerStage<Bytes>(schedule.shape.stages, Bytes{3}),
          PerStage<Bytes>(schedule.shape.stages, Bytes{1})};
}

bool is_weight(const Action& action) {
  return action.op == Op::backward_weight;
}

TEST(PlaceWeightsLatest, PutsAllAtTheEndIfThereIsRoom) {
  const Schedule schedule = in_parts(svpp({.pipeline = 4, .virtual_stages = 2, .micro_batches = 2, .slices = 4}), 7);

  const Schedule placed =
      place_weight_gradients(schedule, with_attention(0.3, 7), room_of_units(schedule, 1000), WeightOrder::latest);

  EXPECT_TRUE(validate(complete(placed, {})).empty());
  for (const auto& list : placed.actions) {
    const auto first = std::find_if(list.begin(), list.end(), is_weight);
    EXPECT_EQ(std::count_if(first, list.end(), is_weight), 2 * 2 * 4 * 7);
    EXPECT_TRUE(std::all_of(first, list.end(), is_weight));
  }
}

TEST(PlaceWeightsLatest, PutsEachBeforeWhatHasNoRoomElse) {
  // Seven units are in flight on the first rank, and there is room for two more.
  const Schedule schedule = in_parts(svpp({.pipeline = 4, .micro_batches = 4, .slices = 4}), 3);

  const Schedule placed =
      place_weight_gradients(schedule, with_attention(0.3, 3), room_of_units(schedule, 9), WeightOrder::latest);

  EXPECT_TRUE(validate(complete(placed, {})).empty());
  for (const auto& list : placed.actions) {
    std::int64_t bytes = 0;
    for (auto action = list.begin(); action != list.end(); ++action) {
      const auto taken = action->op == Op::forward ? 3 : action->op == Op::backward_input ? 1 : 0;
      const bool completes = is_weight(*action) && action->part == 3;
      // The first part of a W stands where what follows its last part would not have fitted.
      if (completes && action + 1 != list.end() && !is_weight(*(action + 1))) {
        EXPECT_GT(bytes + ((action + 1)->op == Op::forward ? 3 : 1), 36);
      }
      bytes += taken - (completes ? 4 : 0);
      EXPECT_LE(bytes, 36);
    }
  }
}

TEST(PlaceWeightsWaiting, LeavesNoRankIdleThatHasOne) {
  for (const double attention : {0.0, 0.1, 0.7}) {
    const Schedule schedule = in_parts(svpp({.pipeline = 8, .virtual_stages = 2, .micro_batches = 3, .slices = 8}), 7);
    const auto durations = with_attention(attention, 7);

    const Schedule placed =
        place_weight_gradients(schedule, durations, room_of_units(schedule, 1000), WeightOrder::waiting);

    const Timeline timeline = simulate(complete(placed, {}), durations);
    std::vector<Seconds> ends(8);
    std::vector<std::int64_t> kept(8);
    for (const Span& span : timeline.spans) {  // of a rank in list order
      if (span.lane != Lane::compute) continue;
      const auto rank = static_cast<std::size_t>(span.rank);
      const bool was_idle = span.start.value > ends[rank].value + step_rounding;
      EXPECT_TRUE(!was_idle || kept[rank] == 0) << "attention " << attention << ", rank " << rank;
      ends[rank] = span.end;
      if (span.action.op == Op::backward_input) kept[rank] += 7;
      if (is_weight(span.action)) --kept[rank];
    }
    EXPECT_THAT(kept, testing::Each(0));
  }
}

TEST(PlaceWeights, RefusesASchedulesOwnPlaces) {
  const Schedule split = split_weight_gradients(svpp({.pipeline = 2, .micro_batches = 2, .slices = 2}));

  EXPECT_THROW(place_weight_gradients(split, unit_prices(), 3), Error);
}

}  // namespace
}  // namespace penstock
