// SPDX-License-Identifier: Apache-2.0
#include "optimizer/norm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "optimizer/stages.hpp"
#include "optimizer/step.hpp"
#include "optimizer/update.hpp"

namespace penstock {
namespace {

const std::vector<std::int64_t> sizes{70001, 3, chunk_elements + 77, 1, 131072, 640, 65537};

/// Block sums of a model cut in `stages` x `replicas`, rank after rank, last rank first.
std::vector<BlockSum> sums_of_layout(const std::vector<Parameter>& model, std::size_t stages, std::int32_t replicas) {
  std::vector<BlockSum> sums;
  Workers workers{2};
  for (std::size_t s = stages; s-- > 0;) {
    for (std::int32_t replica = replicas; replica-- > 0;) {
      const HostStage stage{tests::shape_of(model, s * model.size() / stages, (s + 1) * model.size() / stages,
                                            DType::bf16, replicas, replica)};
      tests::fill_gradients(stage, 1);
      const auto part = block_sums(stage, workers);
      sums.insert(sums.end(), part.begin(), part.end());
    }
  }
  return sums;
}

TEST(Norm, HasTheSameBitsInEveryLayout) {
  const auto model = tests::parameters_of_sizes(sizes);
  const NormResult expected = combine(sums_of_layout(model, 1, 1), model);

  for (std::size_t stages = 1; stages <= 4; ++stages) {
    for (std::int32_t replicas = 1; replicas <= 4; ++replicas) {
      const NormResult found = combine(sums_of_layout(model, stages, replicas), model);
      EXPECT_EQ(std::bit_cast<std::uint64_t>(found.norm), std::bit_cast<std::uint64_t>(expected.norm));
    }
  }
  EXPECT_TRUE(expected.finite);
}

/// `model`'s only parameter, in two stages that each have a part of it.
HostStage part_of(const std::vector<Parameter>& model, std::int64_t first, std::int64_t count) {
  auto shape = tests::shape_of(model, 0, 1, DType::f32);
  shape.parameters[0].parameter.columns = count;
  shape.parameters[0].first = first;
  HostStage stage{shape};
  for (std::int64_t i = 0; i < count; ++i) {
    stage.gradient(0)[static_cast<std::size_t>(i)] = tests::value_of(1, 0, first + i);
  }
  return stage;
}

TEST(Norm, OfSharesOfAParameterHasItsBlocksAndThoseThatABorderCutsInParts) {
  const std::int64_t size = 3 * norm_block_elements + 5;
  const std::int64_t border = norm_block_elements + 1000;
  const auto model = tests::parameters_of_sizes({size});
  Workers workers{1};
  const auto whole = block_sums(part_of(model, 0, size), workers);

  auto sums = block_sums(part_of(model, border, size - border), workers);
  const auto lower = block_sums(part_of(model, 0, border), workers);
  sums.insert(sums.end(), lower.begin(), lower.end());

  ASSERT_EQ(sums.size(), 5U);
  EXPECT_EQ(sums[1], whole[2]);
  EXPECT_EQ(sums[2], whole[3]);
  EXPECT_EQ(sums[3], whole[0]);
  EXPECT_EQ(sums[0].block, 1);
  EXPECT_EQ(sums[4].block, 1);
  const double norm = combine(whole, model).norm;
  EXPECT_NEAR(combine(sums, model).norm, norm, 1e-14 * norm);
}

TEST(Norm, IsTheRootOfAllSquares) {
  const auto model = tests::parameters_of_sizes(sizes);
  const HostStage stage{tests::shape_of(model, 0, model.size(), DType::bf16)};
  tests::fill_gradients(stage, 1);
  long double squares = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(sizes.size()); ++i) {
    for (const float value : stage.gradient(i)) squares += static_cast<long double>(value) * value;
  }

  Workers workers{1};
  const NormResult result = global_norm(block_sums(stage, workers), model, Communicator::self()).norm;

  // Half an epsilon for each of 4096 + 4 additions within a block and 25 over blocks, halved by the root.
  const double expected = static_cast<double>(std::sqrt(squares));
  EXPECT_NEAR(result.norm, expected, expected * 4125 * std::numeric_limits<double>::epsilon() / 4);
}

TEST(Norm, HoldsTheLargestFiniteValues) {
  const auto model = tests::parameters_of_sizes({100});
  const HostStage stage{tests::shape_of(model, 0, 1, DType::bf16)};
  std::fill(stage.gradient(0).begin(), stage.gradient(0).end(), std::numeric_limits<float>::max());

  Workers workers{1};
  const NormResult result = combine(block_sums(stage, workers), model);

  EXPECT_TRUE(result.finite);
  EXPECT_DOUBLE_EQ(result.norm, 10.0 * static_cast<double>(std::numeric_limits<float>::max()));
}

NormResult norm_with(const std::vector<std::pair<std::int32_t, float>>& bad) {
  const auto model = tests::parameters_of_sizes({100, 70000, 100});
  const HostStage stage{tests::shape_of(model, 0, 3, DType::bf16)};
  tests::fill_gradients(stage, 1);
  for (const auto& [parameter, value] : bad) stage.gradient(parameter).back() = value;
  Workers workers{1};
  return combine(block_sums(stage, workers), model);
}

TEST(Norm, NamesTheFirstTensorThatIsNotFiniteAndHow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();

  const NormResult with_nan = norm_with({{1, nan}, {2, infinity}});
  const NormResult with_infinity = norm_with({{1, -infinity}, {2, nan}});

  EXPECT_FALSE(with_nan.finite);
  EXPECT_EQ(with_nan.first_bad_tensor, "p1");
  EXPECT_EQ(with_nan.fault, GradientFault::not_a_number);
  EXPECT_FALSE(with_infinity.finite);
  EXPECT_EQ(with_infinity.first_bad_tensor, "p1");
  EXPECT_EQ(with_infinity.fault, GradientFault::infinite);
  EXPECT_EQ(norm_with({}).first_bad_tensor, "");
}

TEST(Norm, CallsATensorWithBothNotANumber) {
  const auto model = tests::parameters_of_sizes({70000});
  const HostStage stage{tests::shape_of(model, 0, 1, DType::bf16)};
  stage.gradient(0).front() = std::numeric_limits<float>::infinity();
  stage.gradient(0).back() = std::numeric_limits<float>::quiet_NaN();

  Workers workers{1};
  EXPECT_EQ(combine(block_sums(stage, workers), model).fault, GradientFault::not_a_number);
}

TEST(ClipFactor, IsOneUpToTheBoundAndScalesBeyondIt) {
  EXPECT_EQ(clip_factor(1.0, 0.0), 1.0F);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0F);
  EXPECT_EQ(clip_factor(1.0, 4.0), 0.25F);
  EXPECT_EQ(clip_factor(0.0, 1e9), 1.0F);
}

NormResult not_finite() {
  return {.norm = NAN,
          .finite = false,
          .first_bad_tensor = "layers/0/ffn/up/weight",
          .fault = GradientFault::not_a_number,
          .first_bad_rank = 2};
}

TEST(UpdateRule, SkipsWithoutCountingAnUpdate) {
  UpdateRule rule{{.non_finite = NonFinite::skip}, 10};
  rule.decide(1, {.norm = 0.5});

  const Update skipped = rule.decide(2, not_finite());
  const Update next = rule.decide(3, {.norm = 0.5});

  EXPECT_TRUE(skipped.skipped);
  EXPECT_FALSE(next.skipped);
  EXPECT_EQ(rule.adam_steps(), 2);
  const auto expected = adamw_factors({}, next.learning_rate, 2, 1.0F);
  EXPECT_EQ(next.factors.step_size, expected.step_size);
  EXPECT_EQ(next.factors.inverse_root_correction, expected.inverse_root_correction);
}

TEST(UpdateRule, StopsWithTheStepTheTensorAndTheFault) {
  UpdateRule rule{{.non_finite = NonFinite::stop}, 10};

  try {
    rule.decide(4, not_finite());
    rule.check_finite(4, not_finite());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::not_finite);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("step 4"), testing::HasSubstr("rank 2"),
                               testing::HasSubstr("layers/0/ffn/up/weight"), testing::HasSubstr("not a number")));
  }
  EXPECT_EQ(rule.adam_steps(), 0);
}

TEST(UpdateRule, SpeculatesOnTheUpdateOfANormBelowTheBound) {
  UpdateRule rule{{.non_finite = NonFinite::skip}, 10};
  rule.decide(1, {.norm = 0.5});

  const Update speculated = rule.speculate(2);
  EXPECT_EQ(rule.adam_steps(), 1);
  const Update decided = rule.decide(2, {.norm = 0.5});
  const Update clipped = rule.decide(3, {.norm = 2.0});

  EXPECT_EQ(speculated.factors, decided.factors);
  EXPECT_EQ(speculated.learning_rate, decided.learning_rate);
  EXPECT_EQ(speculated.clip_factor, 1.0F);
  EXPECT_EQ(clipped.clip_factor, 0.5F);
  EXPECT_NO_THROW(rule.check_finite(3, {.norm = 2.0}));
  EXPECT_NO_THROW(rule.check_finite(3, not_finite()));  // skipped
}

TEST(UpdateRule, ResumesWithTheCountOfUpdates) {
  const OptimizerOptions options{.learning_rate = {.peak = 1e-2, .warmup = 5}};
  UpdateRule whole{options, 10};
  for (std::int64_t step = 1; step <= 6; ++step) whole.decide(step, {.norm = 3.0});
  UpdateRule resumed{options, 10};
  resumed.restore(6);

  const Update expected = whole.decide(7, {.norm = 3.0});
  const Update found = resumed.decide(7, {.norm = 3.0});

  EXPECT_EQ(found.learning_rate, expected.learning_rate);
  EXPECT_EQ(found.factors.step_size, expected.factors.step_size);
  EXPECT_EQ(found.factors.inverse_root_correction, expected.factors.inverse_root_correction);
  EXPECT_EQ(found.factors.gradient, static_cast<float>(1.0 / 3.0));
}

}  // namespace
}  // namespace penstock
