// SPDX-License-Identifier: Apache-2.0
//
// What a tiny training gives that must not depend on its layout, and its comparison: to the bit, or to the rounding of
// sums that are formed in another order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "execute/tiny_training.hpp"

namespace penstock::test {

struct Outcome {
  std::vector<double> norms;
  std::vector<double> losses;
  std::map<std::string, std::string> parameters;  ///< bytes by name
};

/// Two steps, whose measured peak must be the planned one.
inline Outcome train(const RunShape& shape, const Communicator& world, DelayOptions delays = {},
                     std::int32_t threads = 1) {
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

inline void expect_same(const Outcome& actual, const Outcome& expected) {
  EXPECT_EQ(actual.norms, expected.norms);
  EXPECT_EQ(actual.losses, expected.losses);
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, bytes] : expected.parameters) {
    EXPECT_TRUE(actual.parameters.at(name) == bytes) << name << " differs";
  }
}

/// |a - b| / |b| by the Euclidean norm, of lists of floats given as bytes.
inline double relative_error(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& bytes, std::size_t i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
    return static_cast<double>(value);
  };
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size() / sizeof(float); ++i) {
    difference += std::pow(number(a, i) - number(b, i), 2);
    norm += std::pow(number(b, i), 2);
  }
  return std::sqrt(difference / norm);
}

/// Of fp32 runs whose sums are formed in another order: 1e-6 of a loss, 1e-5 of a norm, and 1e-4 of weights after two
/// steps of AdamW, whose first steps have the size of the learning rate whatever the gradient's.
inline void expect_near(const Outcome& actual, const Outcome& expected) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-6 * std::abs(expected.losses[i])) << i;
  }
  ASSERT_EQ(actual.norms.size(), expected.norms.size());
  for (std::size_t i = 0; i < expected.norms.size(); ++i) {
    EXPECT_NEAR(actual.norms[i], expected.norms[i], 1e-5 * expected.norms[i]) << i;
  }
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, bytes] : expected.parameters) {
    ASSERT_EQ(actual.parameters.at(name).size(), bytes.size()) << name;
    // AdamW divides by the root of the second moment: a gradient that is zero but for rounding (that of a key's bias)
    // becomes a whole step, whatever its sign.
    if (name.ends_with("key/bias")) continue;
    EXPECT_LT(relative_error(actual.parameters.at(name), bytes), 1e-4) << name;
  }
}

}  // namespace penstock::test
