// SPDX-License-Identifier: Apache-2.0
// Steps that are taken back: to the bit from previous states, to rounding by the inverse of AdamW.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "optimizer/stages.hpp"
#include "optimizer/step.hpp"

namespace penstock {
namespace {

constexpr double unit = 0x1p-24;               // half an epsilon: the relative error of one fp32 rounding
constexpr double second_order = 1 + 0x1p-18;   // the bounds leave out terms in its square, of fewer than 64 roundings
constexpr double smallest = 0x1p-126 * 0x1p3;  // below the normal numbers errors are absolute; few roundings, / beta

const std::vector<Parameter> model = tests::parameters_of_sizes({70001, 3, 640});

enum class Previous : std::uint8_t { dropped, kept };

HostStage stage_of(DType storage, Previous previous) {
  auto shape = tests::shape_of(model, 0, model.size(), storage);
  shape.keeps_previous = previous == Previous::kept;
  HostStage stage{shape};
  tests::fill_masters(stage);
  return stage;
}

/// Masters, first and second moments, one piece after the other.
std::array<std::vector<float>, 3> values_of(const HostStage& stage) {
  std::array<std::vector<float>, 3> values;
  for (const auto& state : stage.state()) {
    const std::array<const float*, 3> arrays{state.master, state.first_moment, state.second_moment};
    for (std::size_t i = 0; i < 3; ++i) values[i].insert(values[i].end(), arrays[i], arrays[i] + state.piece.count);
  }
  return values;
}

std::vector<std::byte> copy_of(const HostStage& stage) {
  return {stage.working_copy().begin(), stage.working_copy().end()};
}

void expect_same(const HostStage& actual, const HostStage& expected) {
  const auto found = values_of(actual);
  const auto wanted = values_of(expected);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(found[i].data(), wanted[i].data(), wanted[i].size() * sizeof(float)), 0) << "array " << i;
  }
  EXPECT_EQ(copy_of(actual), copy_of(expected));
}

void take_steps(HostStage& stage, int from, int to, Workers& workers) {
  for (int t = from; t <= to; ++t) {
    tests::fill_gradients(stage, static_cast<std::uint64_t>(t));
    step(stage, adamw_factors({}, 1e-2, t, 1.0F), workers, 1000);
  }
}

class RollbackOf : public testing::TestWithParam<DType> {};

TEST_P(RollbackOf, StagesThatKeepPreviousStatesStepToTheSameBits) {
  HostStage plain = stage_of(GetParam(), Previous::dropped);
  HostStage keeping = stage_of(GetParam(), Previous::kept);
  Workers one{1};
  Workers two{2};

  take_steps(plain, 1, 3, one);
  take_steps(keeping, 1, 3, two);

  expect_same(keeping, plain);
}

TEST_P(RollbackOf, AStepTakenBackLeavesTheBitsBeforeItAndCanBeTakenOtherwise) {
  HostStage expected = stage_of(GetParam(), Previous::dropped);
  HostStage stage = stage_of(GetParam(), Previous::kept);
  Workers workers{1};
  take_steps(expected, 1, 2, workers);
  take_steps(stage, 1, 3, workers);

  take_back(stage, adamw_factors({}, 1e-2, 3, 1.0F), workers);
  stage.refresh_working_copy(workers);
  expect_same(stage, expected);

  tests::fill_gradients(expected, 3);
  step(expected, adamw_factors({}, 1e-2, 3, 0.25F), workers);
  step(stage, adamw_factors({}, 1e-2, 3, 0.25F), workers);
  expect_same(stage, expected);
}

INSTANTIATE_TEST_SUITE_P(Storage, RollbackOf, testing::Values(DType::bf16, DType::f32),
                         [](const auto& of) { return std::string{of.param == DType::bf16 ? "bf16" : "fp32"}; });

struct InverseCase {
  std::array<double, 2> betas;
  double rate;
  double decay;
  int steps;
};

class InverseOf : public testing::TestWithParam<InverseCase> {};

/// The bounds of take_back (optimizer/step), element by element. Gradients are from 2^-24 to 2^7, so that many dwarf
/// what the moments held: there the relative error is large, and the bound says how large.
TEST_P(InverseOf, AStepIsTheStateBeforeItWithinTheDerivedBounds) {
  const auto& [betas, rate, decay, steps] = GetParam();
  const OptimizerOptions options{.betas = betas, .weight_decay = decay};
  HostStage stage = stage_of(DType::f32, Previous::dropped);
  Workers workers{2};
  for (int t = 1; t < steps; ++t) {
    tests::fill_gradients(stage, static_cast<std::uint64_t>(t));
    step(stage, adamw_factors(options, rate, t, 1.0F), workers);
  }
  const auto before = values_of(stage);
  tests::fill_gradients(stage, static_cast<std::uint64_t>(steps));
  const AdamWFactors factors = adamw_factors(options, rate, steps, 0.5F);
  step(stage, factors, workers);
  const auto behind = values_of(stage);

  take_back(stage, factors, workers, 1000);

  const auto found = values_of(stage);
  std::size_t next = 0;
  for (const auto& state : stage.state()) {
    const double kept = model[static_cast<std::size_t>(state.piece.parameter)].decays ? 1.0 - factors.decay : 1.0;
    for (std::int64_t i = 0; i < state.piece.count; ++i, ++next) {
      const double m = before[1][next];
      const double v = before[2][next];
      const double root = std::sqrt(double{behind[2][next]}) * factors.inverse_root_correction + factors.epsilon;
      const double change = factors.step_size * std::abs(double{behind[1][next]}) / root;
      const double master = std::abs(double{before[0][next]});
      const auto bound = [](double of) { return unit * second_order * of + smallest; };
      ASSERT_NEAR(found[0][next], before[0][next], bound((4 * master + 2 * change) / kept));
      ASSERT_NEAR(found[1][next], m, bound(3 * std::abs(m) + std::abs(behind[1][next]) / betas[0]));
      ASSERT_NEAR(found[2][next], v, bound(3 * v + behind[2][next] / betas[1]));
      ASSERT_GE(found[2][next], 0.0F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, InverseOf,
                         testing::Values(InverseCase{{0.9, 0.95}, 1e-2, 0.1, 3},
                                         InverseCase{{0.9, 0.999}, 1e-3, 0.0, 5}, InverseCase{{0.5, 0.25}, 0.5, 1.0, 4},
                                         InverseCase{{0.9, 0.95}, 1e-2, 0.1, 1}));

TEST(Inverse, OfTheFirstStepGivesMomentsOfExactlyZero) {
  HostStage stage = stage_of(DType::bf16, Previous::dropped);
  Workers workers{1};
  take_steps(stage, 1, 1, workers);

  take_back(stage, adamw_factors({}, 1e-2, 1, 1.0F), workers);

  const auto values = values_of(stage);
  EXPECT_THAT(values[1], testing::Each(0.0F));
  EXPECT_THAT(values[2], testing::Each(0.0F));
}

TEST(Inverse, NeverGivesANegativeSecondMoment) {
  // Behind a step of gradient 1 with 1 - b2 = 0.05 no v is below 0.05, so that what is found there is rounding.
  const std::array<float, 2> gradient{1.0F, 1.0F};
  std::array<float, 2> master{1.0F, 1.0F};
  std::array<float, 2> first{0.1F, 0.1F};
  std::array<float, 2> second{0.049999F, 0.06F};

  vector_loops().adamw_inverse(adamw_factors({}, 1e-2, 3, 1.0F), {master.data(), first.data(), second.data()},
                               gradient.data(), 2);

  EXPECT_EQ(second[0], 0.0F);
  EXPECT_NEAR(second[1], 0.01 / 0.95, 0.06 / 0.95 * 4 * unit);
}

TEST(HostStage, ReservesTwelveBytesAParameterForPreviousStates) {
  const HostStage stage = stage_of(DType::bf16, Previous::kept);
  const HostBytes bytes = stage.bytes();

  EXPECT_EQ(bytes.previous, bytes.masters + bytes.moments);
  EXPECT_EQ(bytes.total(), stage_of(DType::bf16, Previous::dropped).bytes().total() + bytes.previous);
  EXPECT_EQ(stage.other_state().size(), stage.state().size());
}

TEST(HostStage, WithoutPreviousStatesHasNothingToSwap) {
  HostStage stage = stage_of(DType::bf16, Previous::dropped);

  EXPECT_TRUE(stage.other_state().empty());
  EXPECT_THROW(stage.swap_states(), Error);
}

}  // namespace
}  // namespace penstock
