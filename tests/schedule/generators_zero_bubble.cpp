// SPDX-License-Identifier: Apache-2.0
//
// The lists of the schedules that split the backward, at sizes that can be checked by hand.
#include <chrono>

#include <gtest/gtest.h>

#include "schedule/helpers.hpp"

namespace penstock {
namespace {

TEST(ZbH1, PutsWeightGradientsWhereOneFOneBWaits) {
  const Schedule schedule = zb_h1({.pipeline = 3, .virtual_stages = 1, .micro_batches = 4});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3");
  EXPECT_EQ(row(schedule, Rank{2}), "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
}

TEST(ZbH2, FillsTheStartWithTwiceTheForwards) {
  const Schedule schedule = zb_h2({.pipeline = 2, .virtual_stages = 1, .micro_batches = 4});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0I2 0W1 0W2 0I3 0W3");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3");
}

TEST(ZbV, AlternatesBetweenTheSidesOfTheV) {
  const Schedule schedule = zb_v({.pipeline = 2, .virtual_stages = 2, .micro_batches = 4});

  EXPECT_EQ(row(schedule, Rank{0}),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 0I2 3W3 0I3 0W2 0W3");
}

TEST(VMin, LetsEachMicroBatchBackSoon) {
  const Schedule schedule = v_min({.pipeline = 2, .virtual_stages = 2, .micro_batches = 2});

  EXPECT_EQ(row(schedule, Rank{1}), "1F0 2F0 1F1 2I0 2F1 1I0 2W0 2I1 1I1 1W0 2W1 1W1");
}

TEST(DualpipeV, SplitsBackwardsAtBothEndsOnly) {
  const Schedule schedule = dualpipe_v({.pipeline = 2, .virtual_stages = 2, .micro_batches = 4});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3");
}

TEST(Hanayo, ExchangesTheTwoSidesOfAWave) {
  const Schedule schedule = hanayo({.pipeline = 2, .virtual_stages = 2, .micro_batches = 2});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1");
}

TEST(FillWeights, IsFast) {
  const GeneratorOptions options{.pipeline = 64, .virtual_stages = 2, .micro_batches = 256};
  const auto start = std::chrono::steady_clock::now();

  v_half(options);

  // Measured 3 ms on one core; the bound leaves room for sanitizers.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds{1000});
}

}  // namespace
}  // namespace penstock
