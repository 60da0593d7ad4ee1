// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "optimizer/stages.hpp"
#include "optimizer/step.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {
namespace {

constexpr double epsilon32 = std::numeric_limits<float>::epsilon();
constexpr std::array<const char*, 3> instruction_sets{"avx512", "avx2", "baseline"};

struct Figures {
  double learning_rate;
  std::array<double, 2> betas;
  double epsilon;
  double weight_decay;
  std::array<double, 8> in_fp64;
  std::array<float, 8> in_fp32;

  OptimizerOptions options() const { return {.betas = betas, .epsilon = epsilon, .weight_decay = weight_decay}; }
};
constexpr int figure_updates = 50;
const std::array<Figures, 3> figures{{
#include "optimizer/adamw_figures.inc"
}};

/// The start and the gradients of scripts/adamw_figures.py.
double figure_start(int element) {
  return (5 * element % 11 - 5) / 8.0;
}
double figure_gradient(int element, int update) {
  return ((7 * element + 13 * update) % 31 - 15) / 16.0;
}

/// AdamW as its paper writes it, in double.
struct PlainAdamW {
  double parameter = 0;
  double first = 0;
  double second = 0;

  void update(const OptimizerOptions& options, double rate, int t, double gradient) {
    const auto [beta1, beta2] = options.betas;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    const double corrected_first = first / (1 - std::pow(beta1, t));
    const double corrected_second = second / (1 - std::pow(beta2, t));
    parameter -=
        rate * (corrected_first / (std::sqrt(corrected_second) + options.epsilon) + options.weight_decay * parameter);
  }
};

/// The bound of the fp32 error after `updates`: each rounds the parameter once (half an epsilon of its size, below 1
/// here) and takes rate x m / sqrt(v), |m / sqrt(v)| below 2 here, with a relative error below 50 epsilons: v gathers
/// at most three roundings per update, halved by the root, over at most 50 updates, and m less.
double tolerance(double rate, int updates) {
  return updates * epsilon32 * (0.5 + 100 * rate);
}

TEST(AdamW, InDoubleIsPyTorchs) {
  for (const auto& figure : figures) {
    for (int element = 0; element < 8; ++element) {
      PlainAdamW plain{.parameter = figure_start(element)};
      for (int t = 1; t <= figure_updates; ++t) {
        plain.update(figure.options(), figure.learning_rate, t, figure_gradient(element, t));
      }

      EXPECT_NEAR(plain.parameter, figure.in_fp64[static_cast<std::size_t>(element)], 1e-14);
    }
  }
}

TEST(AdamW, InSinglePrecisionFollowsPyTorchWithinTheRoundingOfItsUpdates) {
  for (const auto& figure : figures) {
    std::array<float, 8> master{};
    std::array<float, 8> first{};
    std::array<float, 8> second{};
    std::array<float, 8> gradient{};
    std::array<float, 8> copy{};
    for (int i = 0; i < 8; ++i) master[static_cast<std::size_t>(i)] = static_cast<float>(figure_start(i));
    for (int t = 1; t <= figure_updates; ++t) {
      for (int i = 0; i < 8; ++i) gradient[static_cast<std::size_t>(i)] = static_cast<float>(figure_gradient(i, t));
      const auto factors = adamw_factors(figure.options(), figure.learning_rate, t, 1.0F);
      vector_loops().adamw_fp32(factors, {{master.data(), first.data(), second.data()}, gradient.data()}, copy.data(),
                                8);
    }

    const double bound = tolerance(figure.learning_rate, figure_updates);
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(master[i], figure.in_fp64[i], bound);
      EXPECT_NEAR(master[i], figure.in_fp32[i], 2 * bound);
      EXPECT_EQ(copy[i], master[i]);
    }
  }
}

/// One stage after some updates, everything that STEP writes.
struct Stepped {
  std::vector<float> state;
  std::vector<std::byte> copy;
  friend bool operator==(const Stepped& a, const Stepped& b) {
    return a.copy == b.copy && a.state.size() == b.state.size() &&
           std::memcmp(a.state.data(), b.state.data(), a.state.size() * sizeof(float)) == 0;
  }
};

Stepped run_steps(DType storage, std::int32_t threads, std::int64_t tile) {
  const auto model = tests::parameters_of_sizes({70001, 3, chunk_elements + 77, 1, 640});
  HostStage stage{tests::shape_of(model, 0, model.size(), storage)};
  Workers workers{threads};
  tests::fill_masters(stage);
  for (int t = 1; t <= 2; ++t) {
    tests::fill_gradients(stage, static_cast<std::uint64_t>(t));
    step(stage, adamw_factors({}, 1e-2, t, 0.75F), workers, tile);
  }
  Stepped result;
  for (const auto& state : stage.state()) {
    for (const float* values : {state.master, state.first_moment, state.second_moment}) {
      result.state.insert(result.state.end(), values, values + state.piece.count);
    }
  }
  result.copy.assign(stage.working_copy().begin(), stage.working_copy().end());
  return result;
}

TEST(Step, DoesNotDependOnTilesOrThreads) {
  const Stepped bf16 = run_steps(DType::bf16, 1, default_tile);
  const Stepped fp32 = run_steps(DType::f32, 1, default_tile);

  EXPECT_EQ(run_steps(DType::bf16, 2, 1000), bf16);
  EXPECT_EQ(run_steps(DType::bf16, 2, std::int64_t{1} << 40), bf16);
  EXPECT_EQ(run_steps(DType::bf16, 1, 77), bf16);
  EXPECT_EQ(run_steps(DType::f32, 2, default_tile), fp32);
}

TEST(Step, FollowsAPlainAdamWForParametersThatDecayAndThoseThatDoNot) {
  const auto model = tests::parameters_of_sizes({1000, 1000});
  HostStage stage{tests::shape_of(model, 0, 2, DType::f32)};
  Workers workers{2};
  stage.initialize(3, workers);
  std::array<std::vector<PlainAdamW>, 2> plain;
  for (std::size_t i = 0; i < 2; ++i) {
    const float* master = stage.state()[i].master;
    for (std::int64_t j = 0; j < 1000; ++j) plain[i].push_back({.parameter = master[j]});
  }
  const std::array<OptimizerOptions, 2> options{{{.weight_decay = 0.5}, {.weight_decay = 0.0}}};
  ASSERT_TRUE(model[0].decays && !model[1].decays);

  constexpr int updates = 40;
  for (int t = 1; t <= updates; ++t) {
    tests::fill_gradients(stage, static_cast<std::uint64_t>(t));
    step(stage, adamw_factors(options[0], 1e-3, t, 0.5F), workers);
    for (std::int32_t i = 0; i < 2; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const auto gradient = stage.gradient(i);
      for (std::size_t j = 0; j < 1000; ++j) plain[k][j].update(options[k], 1e-3, t, 0.5 * gradient[j]);
    }
  }

  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 1000; ++j) {
      EXPECT_NEAR(stage.state()[i].master[j], plain[i][j].parameter, tolerance(1e-3, updates));
    }
  }
}

TEST(Step, WritesTheRoundedMastersAndNothingBetweenTheParameters) {
  const auto model = tests::parameters_of_sizes({33, 70});
  HostStage stage{tests::shape_of(model, 0, 2, DType::bf16)};
  Workers workers{1};
  stage.initialize(3, workers);
  std::fill(stage.working_copy().begin(), stage.working_copy().end(), std::byte{0xA5});
  tests::fill_gradients(stage, 1);

  step(stage, adamw_factors({}, 1e-2, 1, 1.0F), workers);

  std::vector<std::byte> stepped{stage.working_copy().begin(), stage.working_copy().end()};
  for (std::size_t i = 33 * 2; i < 128; ++i) EXPECT_EQ(stepped[i], std::byte{0xA5});
  stage.refresh_working_copy(workers);
  EXPECT_TRUE(std::equal(stepped.begin(), stepped.end(), stage.working_copy().begin()));
}

/// What every loop gives for the same numbers.
struct LoopResults {
  std::vector<float> master, first, second;
  std::vector<std::uint16_t> copy;
  double squares = 0;
  friend bool operator==(const LoopResults&, const LoopResults&) = default;
};

LoopResults run_loops(const VectorLoops& loops, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  LoopResults result{values, values, values, std::vector<std::uint16_t>(values.size()), 0};
  for (auto& value : result.second) value *= value;
  const AdamWArrays arrays{{result.master.data(), result.first.data(), result.second.data()}, values.data()};
  loops.adamw_bf16(adamw_factors({}, 1e-2, 5, 0.3F), arrays, result.copy.data(), count);
  loops.adamw_inverse(adamw_factors({}, 1e-2, 5, 1.0F), arrays.state, values.data(), count);
  result.squares = loops.sum_of_squares(values.data(), count);
  loops.add(result.first.data(), values.data(), count);
  loops.add_two(result.second.data(), values.data(), result.second.data(), count);
  return result;
}

TEST(VectorLoops, GiveTheSameBitsInEveryInstructionSet) {
  const CounterRandom random{5, RandomPurpose::tests, 2};
  std::vector<float> values(1003);  // no multiple of any vector
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  const LoopResults expected = run_loops(*vector_loops("baseline"), values);

  for (const char* name : {"avx512", "avx2"}) {
    const VectorLoops* loops = vector_loops(name);
    EXPECT_TRUE(loops == nullptr || run_loops(*loops, values) == expected) << name;
  }
}

TEST(VectorLoops, RoundToBf16ToNearestEven) {
  const auto value_of = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  const std::vector<std::pair<std::uint32_t, std::uint16_t>> cases{
      {0x3F800000, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81}, {0x3F818000, 0x3F82},  // ties to even
      {0x3F807FFF, 0x3F80}, {0xBF818000, 0xBF82}, {0x00000000, 0x0000}, {0x80000000, 0x8000},
      {0x00010000, 0x0001}, {0x00008001, 0x0001},                                              // denormals are kept
      {0x7F7FFFFF, 0x7F80},                                                                    // rounds to infinity
      {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x7FC00000, 0x7FC0}, {0x7F800001, 0x7FC0},  // a NaN stays one
      {0xFFFFFFFF, 0xFFFF}};
  for (const char* name : instruction_sets) {
    const VectorLoops* loops = vector_loops(name);
    if (loops == nullptr) continue;
    for (const std::size_t copies : {1UL, 40UL}) {  // in the tail, and in whole vectors
      for (const auto& [bits, expected] : cases) {
        const std::vector<float> in(copies, value_of(bits));
        std::vector<std::uint16_t> out(copies);
        loops->to_bf16(out.data(), in.data(), static_cast<std::int64_t>(copies));
        EXPECT_THAT(out, testing::Each(expected)) << name << " " << std::hex << bits;
      }
    }
  }
}

TEST(VectorLoops, SumSquaresCloseToALongDoubleSum) {
  const CounterRandom random{6, RandomPurpose::tests, 2};
  for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 65536}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    long double expected = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(random.normal(i));
      expected += static_cast<long double>(values[i]) * values[i];
    }
    const double sum = vector_loops().sum_of_squares(values.data(), count);

    // Exact squares; count / 16 + 4 additions of positive terms on the way of each, half an epsilon each.
    const double roundings = static_cast<double>(count) / 16 + 4;
    EXPECT_NEAR(sum, static_cast<double>(expected),
                static_cast<double>(expected) * roundings * std::numeric_limits<double>::epsilon() / 2);
  }
}

TEST(VectorLoops, AreChosenByNameOrRefused) {
  EXPECT_NE(vector_loops("baseline"), nullptr);
  EXPECT_EQ(vector_loops("sve"), nullptr);
  EXPECT_EQ(vector_loops(vector_loops().instruction_set), &vector_loops());
}

TEST(AdamWFactors, CorrectTheFirstUpdateCompletely) {
  const auto factors = adamw_factors({.betas = {0.9, 0.95}, .weight_decay = 0.1}, 1e-3, 1, 1.0F);

  EXPECT_FLOAT_EQ(factors.step_size, 1e-2F);
  EXPECT_FLOAT_EQ(factors.inverse_root_correction, static_cast<float>(1 / std::sqrt(0.05)));
  EXPECT_FLOAT_EQ(factors.decay, 1e-4F);
  EXPECT_THROW(adamw_factors({}, 1e-3, 0, 1.0F), Error);
}

TEST(AdamWFactors, LoseNoCorrectionAfterManyUpdates) {
  const auto factors = adamw_factors({}, 1e-3, std::int64_t{1} << 40, 1.0F);

  EXPECT_EQ(factors.step_size, 1e-3F);
  EXPECT_EQ(factors.inverse_root_correction, 1.0F);
}

}  // namespace
}  // namespace penstock
