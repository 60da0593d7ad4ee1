// SPDX-License-Identifier: Apache-2.0
// Runs on 2 and 4 ranks, which share their attention.
#include "execute/attention_sharing.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"

namespace penstock {
namespace {

using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;

constexpr auto no_delays = DelayOptions{};
constexpr std::int32_t one_thread = 1;

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::string> parameters;
};

Outcome train(const RunShape& shape, const Communicator& world, DelayOptions delays = no_delays,
              std::int32_t threads = one_thread) {
  TinyTraining training{shape, world, delays, threads};
  Outcome outcome;
  for (int step = 1; step <= 2; ++step) {
    training.step(step);
    outcome.norms.push_back(training.work.norm().norm);
    for (const double loss : training.losses()) outcome.losses.push_back(loss);
  }
  EXPECT_EQ(training.state.peak_device_bytes(), training.plan.training.ranks[training.state.place().coordinate].peak);
  outcome.parameters = training.parameters();
  return outcome;
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// |a - b| / |b| by the Euclidean norm.
double relative_error(const std::string& a, const std::string& b) {
  const auto x = floats_of(a);
  const auto y = floats_of(b);
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    difference += std::pow(static_cast<double>(x.at(i)) - static_cast<double>(y[i]), 2);
    norm += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(difference / norm);
}

void expect_same(const Outcome& actual, const Outcome& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.norms, expected.norms);
  EXPECT_TRUE(actual.parameters == expected.parameters);
}

class AttentionSharingOfRanks : public testing::TestWithParam<Family> {
 protected:
  /// Slices of six tokens: two of two and two of one with four of them.
  RunShape shape(Exchange exchange, std::optional<ExchangeGrain> grain, std::int32_t virtual_stages = 1) const {
    RunShape shape = tiny_run(tiny_model(GetParam(), Tied::yes), world_.size());
    shape.schedule.kind = ScheduleKind::slimpipe;
    shape.schedule.slices = 4;
    shape.schedule.virtual_stages = virtual_stages;
    shape.schedule.exchange = exchange;
    shape.schedule.exchange_grain = grain;
    return shape;
  }
  Outcome alone() const { return train(shape(Exchange::none, {}), world_); }

  /// Parts are merged in another order: 1e-6 of a loss; of a norm, and of weights after two steps of AdamW, whose first
  /// steps have the size of the learning rate whatever the gradient's, 1e-5.
  void expect_near(const Outcome& actual, const Outcome& expected) const {
    ASSERT_EQ(actual.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-6 * std::abs(expected.losses[i]));
    }
    for (std::size_t i = 0; i < expected.norms.size(); ++i) {
      EXPECT_NEAR(actual.norms[i], expected.norms[i], 1e-5 * expected.norms[i]);
    }
    for (const auto& [name, bytes] : expected.parameters) {
      // Gradients that are zero but for rounding become steps of the size of the learning rate.
      if (name.ends_with("key/bias")) continue;
      EXPECT_LT(relative_error(actual.parameters.at(name), bytes), 1e-4) << name;
    }
  }

  Communicator world_ = Communicator::world();
};

TEST_P(AttentionSharingOfRanks, TrainsAsRanksThatShareNothing) {
  const Outcome expected = alone();

  for (const Exchange exchange : {Exchange::pairwise, Exchange::global}) {
    for (const ExchangeGrain grain : {ExchangeGrain::chunk, ExchangeGrain::half}) {
      for (const std::int32_t virtual_stages : {1, 2}) {
        SCOPED_TRACE(testing::Message() << deck_name(exchange) << " " << deck_name(grain) << " " << virtual_stages);
        expect_near(train(shape(exchange, grain, virtual_stages), world_), expected);
      }
    }
  }
}

TEST_P(AttentionSharingOfRanks, TakesItsMemoryFromThePlan) {
  const RunShape sharing = shape(Exchange::global, {});
  const RunPlan with = test::plan_of(sharing);
  const RunPlan without = test::plan_of(shape(Exchange::none, {}));

  // That the run takes what is planned every training of this file checks.
  for (const Rank rank : all<Rank>(world_.size())) {
    EXPECT_GT(with.training.ranks[rank].peak, without.training.ranks[rank].peak);
  }
}

TEST_P(AttentionSharingOfRanks, TrainsToTheSameBitsWhateverTheDelaysAndThreads) {
  const RunShape sharing = shape(Exchange::global, ExchangeGrain::half, 2);
  const Outcome expected = train(sharing, world_);

  expect_same(train(sharing, world_, {.seed = 3, .longest = Seconds{2e-3}}), expected);
  expect_same(train(sharing, world_, {.seed = 4, .longest = Seconds{1e-3}}, 2), expected);
}

TEST_P(AttentionSharingOfRanks, TrainsWithSplitBackwardsRecomputationAndUnevenStages) {
  const Outcome expected = alone();

  RunShape sharing = shape(Exchange::global, {});
  sharing.schedule.split_backward = true;
  expect_near(train(sharing, world_), expected);
  sharing.recompute = Recompute::full;
  expect_near(train(sharing, world_), expected);
  sharing.layers_per_stage = std::vector<std::int32_t>(static_cast<std::size_t>(world_.size()), 1);
  sharing.layers_per_stage->back() = 9 - world_.size();
  expect_near(train(sharing, world_), expected);
}

INSTANTIATE_TEST_SUITE_P(, AttentionSharingOfRanks, testing::Values(Family::llama, Family::gpt2),
                         [](const auto& one) { return one.param == Family::llama ? "llama" : "gpt2"; });

}  // namespace
}  // namespace penstock
