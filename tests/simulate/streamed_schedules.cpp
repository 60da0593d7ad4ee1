// SPDX-License-Identifier: Apache-2.0
//
// Closed forms of the schedules that stream their parameters.
#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/streamed_generators.hpp"
#include "schedule/text.hpp"
#include "simulate/helpers.hpp"
#include "simulate/simulate.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

double streamed_bubble(const Schedule& compute) {
  const Schedule schedule = complete(compute, {});
  return summarize(simulate(schedule, unit_prices(schedule))).bubble_makespan;
}

Schedule spipe_of(std::int32_t p, std::int32_t m, std::int32_t forward_virtual, std::int32_t backward_virtual) {
  GeneratorOptions options;
  options.pipeline = p;
  options.micro_batches = m;
  options.forward_virtual = forward_virtual;
  options.backward_virtual = backward_virtual;
  return spipe(options);
}

Schedule mobius_of(std::int32_t p, std::int32_t m, std::int32_t v) {
  GeneratorOptions options;
  options.pipeline = p;
  options.micro_batches = m;
  options.virtual_stages = v;
  return mobius(options);
}

TEST(Simulate, GivesSpipeItsBubbleWhereTheBackwardStagesAreAThirdOfTheForwardOnes) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 3 * p; ++m) {
      for (int v = 1; v <= 3; ++v) {
        EXPECT_NEAR(streamed_bubble(spipe_of(p, m, v, 3 * v)), (p - 1.0) / (4 * v * m + p - 1.0), bubble_rounding)
            << p << " " << m << " " << v;
      }
    }
  }
}

TEST(Simulate, GivesMobiusItsBubble) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 3 * p; ++m) {
      for (int v = 1; v <= 3; ++v) {
        EXPECT_NEAR(streamed_bubble(mobius_of(p, m, v)), (p - 1.0) / (v * m + p - 1.0), bubble_rounding)
            << p << " " << m << " " << v;
      }
    }
  }
}

/// With a forward of a stage as unit; a fetch of a stage's parameters takes as long as is said.
Seconds step(Schedule compute, bool late_checkpoints, Seconds fetch = {}, CompletionOptions options = {}) {
  compute.recomputes_late = false;
  options.late_checkpoints = late_checkpoints;
  const Schedule schedule = complete(compute, options);
  const Prices units = unit_prices(schedule);
  const Prices prices = [&](const ActionOnRank& node) {
    const bool fetches = lane_of(node.action.op) == Lane::to_device;
    return fetches ? fetch : units(node);
  };
  StepTimes times;
  simulate(schedule, prices, {}, {}, &times);
  return times.step;
}

// A forward of a stage lasts 1, R 1 and B 2. With R as early as it can be, each rank starts its first B when the
// gradient is there, 2 after the rank before; a checkpoint that comes a time step before its use makes that 3. (With
// one stage a rank the last rank's is the model's first, which needs no checkpoint.)
TEST(Simulate, LetsLateCheckpointsTakeBackWhatRecomputingEarlyGains) {
  for (int p = 2; p <= 6; ++p) {
    for (int m = p; m <= 2 * p; ++m) {
      for (int v = 2; v <= 3; ++v) {
        EXPECT_EQ(step(spipe_of(p, m, v, v), false).value, 4 * v * m + 2 * (p - 1)) << p << " " << m << " " << v;
        EXPECT_EQ(step(spipe_of(p, m, v, v), true).value, 4 * v * m + 3 * (p - 1)) << p << " " << m << " " << v;
      }
    }
  }
}

// Each fetch but the first runs beside the m micro-batches of the stage before, and is exposed by what it takes longer.
// Mobius keeps its last forward stage for the first backward; decoupled passes have to fetch that one too.
TEST(Simulate, ExposesOneFetchMoreWhereThePassesAreDecoupled) {
  for (int p = 1; p <= 4; ++p) {
    for (int m = p; m <= 2 * p; ++m) {
      for (int v = 2; v <= 3; ++v) {
        for (int quarters = 1; quarters <= 12; ++quarters) {
          const Seconds fetch{0.25 * quarters * m};  // a backward stage's micro-batches take 3 m
          const double exposed = std::max(0.0, fetch.value - m);
          const bool late = p > 1;

          const Seconds decoupled = step(spipe_of(p, m, v, v), late, fetch) - step(spipe_of(p, m, v, v), late);
          const Seconds together = step(mobius_of(p, m, v), false, fetch) - step(mobius_of(p, m, v), false);

          EXPECT_EQ(decoupled.value, fetch.value + v * exposed) << p << " " << m << " " << v << " " << quarters;
          EXPECT_EQ(together.value, fetch.value + (v - 1) * exposed) << p << " " << m << " " << v << " " << quarters;
        }
      }
    }
  }
}

// One rank, two stages, one on the device at a time. The fetches of both forwards are exposed; that of the last
// backward runs beside the weight gradient of the stage before, which has left with its I.
TEST(Simulate, FetchesAStageBesideTheWeightGradientOfTheOneBefore) {
  const Schedule compute = read_schedule_csv("0F0,1F0,1I0,1W0,0I0,0W0", "my.csv");
  for (int quarters = 1; quarters <= 12; ++quarters) {
    const Seconds fetch{0.25 * quarters};

    const CompletionOptions from_the_host{.stream_parameters = true, .resident_stages = 1};

    EXPECT_EQ(step(compute, false, fetch, from_the_host).value,
              2 * (fetch.value + 1) + 1 + std::max(fetch.value, 1.0) + 2)
        << quarters;
  }
}

// Methods 1.5, to the digits that stand there.
TEST(Simulate, GivesThePublishedBubblesOfSpipeAndMobius) {
  constexpr double half_digit = 0.05;
  const struct {
    int p;
    double spipe;
    double mobius;
    double equal_stages;
  } rows[] = {{4, 4.5, 15.8, 12.3}, {8, 5.2, 17.9, 14.1}, {16, 5.5, 19.0, 15.0}, {32, 5.7, 19.5, 15.4}};

  for (const auto& row : rows) {
    EXPECT_NEAR(100 * streamed_bubble(spipe_of(row.p, 2 * row.p, 2, 6)), row.spipe, half_digit) << row.p;
    EXPECT_NEAR(100 * streamed_bubble(mobius_of(row.p, 2 * row.p, 2)), row.mobius, half_digit) << row.p;
    EXPECT_NEAR(100 * streamed_bubble(spipe_of(row.p, 2 * row.p, 2, 2)), row.equal_stages, half_digit) << row.p;
  }
  EXPECT_NEAR(100 * streamed_bubble(spipe_of(4, 8, 2, 6)), 4.48, 0.005);
  EXPECT_NEAR(100 * streamed_bubble(mobius_of(4, 8, 2)), 15.79, 0.005);
}

TEST(Simulate, LosesLessAtTheTurnIfARecomputationNeedNotWaitForTheGradient) {
  GeneratorOptions options;
  options.pipeline = 4;
  options.micro_batches = 8;
  options.virtual_stages = 2;
  const double late = streamed_bubble(mobius(options));
  options.early_recompute = true;

  // Filling the backward pass costs 2 units a rank in place of 3: 9 idle units a rank in place of 12, beside 64 of
  // work.
  EXPECT_NEAR(late, 12.0 / (64 + 12), bubble_rounding);
  EXPECT_NEAR(streamed_bubble(mobius(options)), 9.0 / (64 + 9), bubble_rounding);
}

TEST(Simulate, NeedsNoMultipleOfTheRanksForStagesThatAreDealt) {
  GeneratorOptions options;
  options.pipeline = 4;
  options.micro_batches = 8;
  options.forward_stages = 6;
  options.backward_stages = 18;

  // 24 stages of 3 units a micro-batch over 4 ranks: each rank has 6, as in a multiple; so the bubble is that of the
  // formula with 6 stages a rank.
  EXPECT_NEAR(streamed_bubble(spipe(options)), 3.0 / (6 * 8 + 3), bubble_rounding);
}

}  // namespace
}  // namespace penstock
