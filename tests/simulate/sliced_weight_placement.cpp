// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/plan.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"
#include "schedule/weight_placement.hpp"
#include "simulate/helpers.hpp"
#include "simulate/simulate.hpp"

namespace penstock {
namespace {

/// Lengths of one slice's actions where attention takes `attention` x (slice + 1/2) of F, and twice as much of the
/// input gradient, as it has no weights; all else takes one unit in each of F, I and W. B is I and W.
Prices with_attention(double attention) {
  return [attention](const ActionOnRank& node) {
    const double of_slice = attention * (node.action.slice.value() + 0.5);
    switch (node.action.op) {
      case Op::forward:
      case Op::recompute:
        return Seconds{1 + of_slice};
      case Op::backward_input:
        return Seconds{1 + 2 * of_slice};
      case Op::backward:
        return Seconds{2 + 2 * of_slice};
      default:
        return unit_duration(node.action.op);
    }
  };
}

/// Calls visit(Schedule) with sliced and whole schedules of a few sizes.
template <class Visit>
void for_each_example(const Visit& visit) {
  for (const int p : {1, 2, 4}) {
    for (const int v : {1, 2}) {
      for (const int n : {1, 3, 4}) {
        for (const int m : {1, 2, 4}) {
          const GeneratorOptions options{.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n};
          visit(svpp(options));
          visit(seq1f1b_interleaved(options));
          visit(terapipe(options));
        }
      }
    }
  }
}

std::string sizes(const Schedule& schedule) {
  return fmt::format("{} p={} m={}", schedule.name, schedule.shape.ranks, schedule.shape.micro_batches);
}

TEST(PlaceWeightGradients, IsValid) {
  for_each_example([](const Schedule& schedule) {
    for (const int limit : {1, 2, 5, 1000}) {
      const Schedule placed = place_weight_gradients(schedule, with_attention(0.3), limit);

      const auto findings = validate(complete(placed, {}));
      EXPECT_TRUE(findings.empty()) << sizes(schedule) << ": " << findings.front().text;
    }
  });
}

TEST(PlaceWeightGradients, IsValidWhereStagesRecompute) {
  for_each_example([](const Schedule& schedule) {
    const Schedule recomputing = add_recompute(schedule, PerStage<bool>(schedule.shape.stages, true));

    const Schedule placed = place_weight_gradients(recomputing, unit_prices(), 3);

    EXPECT_TRUE(validate(complete(placed, {})).empty()) << sizes(schedule);
  });
}

TEST(PlaceWeightGradients, NeverTakesLongerThanWithWholeBackwards) {
  for_each_example([](const Schedule& schedule) {
    for (const double attention : {0.0, 0.1, 0.7}) {
      for (const int limit : {1, 3, 1000}) {
        const auto durations = with_attention(attention);

        const Schedule placed = place_weight_gradients(schedule, durations, limit);

        EXPECT_LE(step_of(placed, durations).value, step_of(schedule, durations).value + step_rounding)
            << sizes(schedule) << " attention " << attention << " limit " << limit;
      }
    }
  });
}

TEST(PlaceWeightGradients, NeverKeepsMoreOperandsThanTheLimit) {
  for_each_example([](const Schedule& schedule) {
    for (const int limit : {1, 2, 5}) {
      const Schedule placed = complete(place_weight_gradients(schedule, with_attention(0.3), limit), {});

      for (const Rank rank : all<Rank>(placed.shape.ranks)) {
        EXPECT_LE(most_live(placed, rank, BufferKind::weight_operands), limit) << sizes(schedule);
      }
    }
  });
}

TEST(PlaceWeightGradients, FillsTheWaitsThatAttentionLeavesInSvpp) {
  for (const int v : {1, 2}) {
    const auto durations = with_attention(0.1);
    const Schedule schedule = svpp({.pipeline = 8, .virtual_stages = v, .micro_batches = 4, .slices = 8});
    const Seconds beside = step_of(split_weight_gradients(schedule), durations);

    const Seconds some = step_of(place_weight_gradients(schedule, durations, 4), durations);
    const Seconds all = step_of(place_weight_gradients(schedule, durations, 1000), durations);

    RecordProperty(fmt::format("v{}", v),
                   fmt::format("{} {} {} {}", step_of(schedule, durations).value, beside.value, some.value, all.value));
    EXPECT_LT(some, beside);
    EXPECT_LT(all, some);
  }
}

TEST(PlaceWeightGradients, OfOneFOneBFillsTheDrain) {
  // Rank 0 waits one unit before each of its last backwards; as ZB-H1 does, but within this order of forwards.
  const Schedule schedule = seq1f1b({.pipeline = 2, .micro_batches = 3});

  const Schedule placed = place_weight_gradients(schedule, unit_prices(), 3);

  EXPECT_EQ(step_of(schedule, unit_prices()), Seconds{12});
  EXPECT_EQ(step_of(placed, unit_prices()), Seconds{10});
}

/// Room on every rank for so many bytes, of which a unit keeps 3 from F and 1 more from I to W.
WeightRoom room_for(const Schedule& schedule, std::int64_t bytes) {
  const auto stages = schedule.shape.stages;
  return {PerRank<Bytes>(schedule.shape.ranks, Bytes{bytes}), PerStage<Bytes>(stages, Bytes{3}),
          PerStage<Bytes>(stages, Bytes{1})};
}

/// The most that a rank keeps of it at any place of its list.
std::int64_t most_kept(const Schedule& schedule, Rank rank) {
  std::int64_t kept = 0;
  std::int64_t most = 0;
  for (const Action& action : schedule.actions[rank]) {
    if (action.op == Op::forward) kept += 3;
    if (action.op == Op::backward_input) kept += 1;
    most = std::max(most, kept);
    if (action.op == Op::backward_weight) kept -= 4;
  }
  return most;
}

TEST(PlaceWeightGradients, KeepsNoMoreBytesThanThereIsRoomForWhereThatIsPossible) {
  for_each_example([](const Schedule& schedule) {
    for (const std::int64_t more : {0, 4, 9}) {
      const Schedule beside = split_weight_gradients(schedule);
      for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
        const std::int64_t room = most_kept(beside, rank) + more;

        const Schedule placed = place_weight_gradients(schedule, with_attention(0.3), room_for(schedule, room));

        EXPECT_LE(most_kept(placed, rank), room) << sizes(schedule);
      }
    }
  });
}

TEST(PlaceWeightGradients, WithRoomForAllIsAsWithoutALimit) {
  for_each_example([](const Schedule& schedule) {
    const auto durations = with_attention(0.3);

    const Schedule by_room = place_weight_gradients(schedule, durations, room_for(schedule, 1'000'000));

    EXPECT_EQ(by_room.actions, place_weight_gradients(schedule, durations, 1000).actions) << sizes(schedule);
  });
}

TEST(PlaceWeightGradients, WithMoreRoomFillsMoreWaits) {
  const auto durations = with_attention(0.1);
  const Schedule schedule = svpp({.pipeline = 8, .micro_batches = 4, .slices = 8});
  const auto step_with = [&](std::int64_t room) {
    return step_of(place_weight_gradients(schedule, durations, room_for(schedule, room)), durations);
  };

  // 15 units are in flight on the first rank.
  EXPECT_LT(step_with(3 * 15 + 16), step_with(3 * 15 + 1));
  EXPECT_LT(step_with(3 * 15 + 400), step_with(3 * 15 + 16));
}

TEST(PlaceWeightGradients, RefusesToKeepNone) {
  EXPECT_THROW(place_weight_gradients(seq1f1b({}), unit_prices(), 0), Error);
}

TEST(PlaceWeightGradients, RefusesAScheduleThatCannotRun) {
  try {
    place_weight_gradients(read_schedule_csv("0B0,0F0", "backwards"), unit_prices(), 1);
    FAIL() << "placed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    EXPECT_THAT(error.what(), testing::HasSubstr("'backwards'"));
  }
}

}  // namespace
}  // namespace penstock
