// SPDX-License-Identifier: Apache-2.0
#include "optimizer/learning_rate.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace penstock {
namespace {

LearningRateOptions options_of(Decay decay) {
  return {.peak = 3e-3, .warmup = 20, .decay = decay, .minimum = 3e-4};
}

TEST(LearningRate, WarmsUpInAStraightLineToThePeak) {
  for (const Decay decay : {Decay::cosine, Decay::linear, Decay::constant, Decay::wsd}) {
    EXPECT_DOUBLE_EQ(learning_rate(options_of(decay), 1, 200), 3e-3 / 20);
    EXPECT_DOUBLE_EQ(learning_rate(options_of(decay), 10, 200), 1.5e-3);
    EXPECT_EQ(learning_rate(options_of(decay), 20, 200), 3e-3);
  }
}

TEST(LearningRate, WithoutWarmUpStartsOneStepIntoTheDecay) {
  const LearningRateOptions options{.peak = 1.0, .warmup = 0, .decay = Decay::linear, .minimum = 0.0};

  EXPECT_DOUBLE_EQ(learning_rate(options, 1, 4), 0.75);
  EXPECT_EQ(learning_rate(options, 4, 4), 0.0);
}

TEST(LearningRate, EndsExactlyAtTheMinimum) {
  for (const Decay decay : {Decay::cosine, Decay::linear, Decay::wsd}) {
    EXPECT_EQ(learning_rate(options_of(decay), 200, 200), 3e-4);
  }
  EXPECT_EQ(learning_rate(options_of(Decay::constant), 200, 200), 3e-3);
}

TEST(LearningRate, IsHalfWayInTheMiddleOfTheDecay) {
  EXPECT_DOUBLE_EQ(learning_rate(options_of(Decay::cosine), 110, 200), 1.65e-3);
  EXPECT_DOUBLE_EQ(learning_rate(options_of(Decay::linear), 110, 200), 1.65e-3);
  // A sixth of half a cosine: cos(30 degrees).
  EXPECT_DOUBLE_EQ(learning_rate(options_of(Decay::cosine), 50, 200), 3e-4 + 2.7e-3 * (1 + std::sqrt(0.75)) / 2);
}

TEST(LearningRate, OfWsdIsPeakThenDecaysOverTheLastFifth) {
  auto options = options_of(Decay::wsd);

  EXPECT_EQ(learning_rate(options, 160, 200), 3e-3);
  EXPECT_LT(learning_rate(options, 161, 200), 3e-3);
  EXPECT_DOUBLE_EQ(learning_rate(options, 180, 200), 1.65e-3);
  options.decay_steps = 10;
  EXPECT_EQ(learning_rate(options, 190, 200), 3e-3);
  EXPECT_DOUBLE_EQ(learning_rate(options, 195, 200), 1.65e-3);
}

TEST(LearningRate, OfWsdNeverDecaysBeforeTheWarmUpEnds) {
  auto options = options_of(Decay::wsd);
  options.decay_steps = 1000;

  EXPECT_DOUBLE_EQ(learning_rate(options, 10, 40), 1.5e-3);
  EXPECT_EQ(learning_rate(options, 20, 40), 3e-3);
  EXPECT_DOUBLE_EQ(learning_rate(options, 30, 40), 1.65e-3);
  EXPECT_EQ(learning_rate(options, 40, 40), 3e-4);
}

TEST(LearningRate, NeverRisesAfterTheWarmUp) {
  for (const Decay decay : {Decay::cosine, Decay::linear, Decay::constant, Decay::wsd}) {
    double before = std::numeric_limits<double>::infinity();
    for (std::int64_t step = 20; step <= 97; ++step) {
      const double rate = learning_rate(options_of(decay), step, 97);
      EXPECT_LE(rate, before);
      EXPECT_GE(rate, 3e-4);
      before = rate;
    }
  }
}

TEST(LearningRate, OfAWarmUpAsLongAsTheRunOrLongerOnlyRises) {
  for (const Decay decay : {Decay::cosine, Decay::linear, Decay::constant, Decay::wsd}) {
    EXPECT_EQ(learning_rate(options_of(decay), 20, 20), 3e-3);
    EXPECT_DOUBLE_EQ(learning_rate(options_of(decay), 5, 5), 0.75e-3);
  }
}

TEST(LearningRate, OfAnExtendedRunFollowsTheNewTotal) {
  const auto options = options_of(Decay::cosine);

  // Resumed from step 200 of 200 (at the minimum) with 400 steps: the course of a run of 400 from there.
  EXPECT_GT(learning_rate(options, 201, 400), learning_rate(options, 200, 200));
  EXPECT_EQ(learning_rate(options, 400, 400), 3e-4);
}

TEST(LearningRate, RefusesStepsOutsideTheRun) {
  EXPECT_THROW(learning_rate(options_of(Decay::cosine), 0, 200), Error);
  EXPECT_THROW(learning_rate(options_of(Decay::cosine), 201, 200), Error);
}

}  // namespace
}  // namespace penstock
