// SPDX-License-Identifier: Apache-2.0
//
// Every operation of the reference kernels on data that can be checked by hand.
#include <cmath>
#include <numbers>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/kernels.hpp"
#include "reference_tensor.hpp"

namespace penstock::test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;

// A few roundings of numbers around 1.
constexpr double few_roundings = 4 * std::numeric_limits<double>::epsilon();

class ReferenceKernels : public testing::Test {
 protected:
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
};

TEST_F(ReferenceKernels, EmbedTokensAtTheirPositions) {
  Tensor tokens{DType::i32, 1, 4, {2, 0, 1, 2}};
  Tensor table{DType::f64, 3, 2, {1, 2, 3, 4, 5, 6}};
  Tensor positions{DType::f64, 3, 2, {100, 100, 10, 20, 30, 40}};
  Tensor out{DType::f64, 4, 2};

  kernels_->embedding(out, tokens, table, {}, 2, 0);
  EXPECT_THAT(out.values(), ElementsAre(5, 6, 1, 2, 3, 4, 5, 6));

  kernels_->embedding(out, tokens, table, positions, 2, 1);
  EXPECT_THAT(out.values(), ElementsAre(15, 26, 31, 42, 13, 24, 35, 46));
}

TEST_F(ReferenceKernels, AddEmbeddingGradientsByTokenAndPosition) {
  Tensor tokens{DType::i32, 1, 4, {2, 0, 1, 2}};
  Tensor gradient{DType::f64, 4, 1, {1, 10, 100, 1000}};
  Tensor table{DType::f64, 3, 1, {0.5, 0, 0}};
  Tensor positions{DType::f64, 3, 1, {0, 0.25, 0}};

  kernels_->embedding_gradient(table, positions, gradient, tokens, 2, 1);

  EXPECT_THAT(table.values(), ElementsAre(10.5, 100, 1001));
  EXPECT_THAT(positions.values(), ElementsAre(0, 101.25, 1010));
}

TEST_F(ReferenceKernels, AddNothingToTheTableForTokensOfAnother) {
  Tensor tokens{DType::i32, 1, 4, {2, -1, 1, -1}};
  Tensor gradient{DType::f64, 4, 1, {1, 10, 100, 1000}};
  Tensor table{DType::f64, 3, 1, {0.5, 0, 0}};
  Tensor positions{DType::f64, 3, 1, {0, 0.25, 0}};

  kernels_->embedding_gradient(table, positions, gradient, tokens, 2, 1);

  EXPECT_THAT(table.values(), ElementsAre(0.5, 100, 1));
  EXPECT_THAT(positions.values(), ElementsAre(0, 101.25, 1010));
}

TEST_F(ReferenceKernels, DivideByTheRootMeanSquare) {
  Tensor in{DType::f64, 2, 2, {1, 7, 0, 0}};
  Tensor weight{DType::f64, 1, 2, {1, 2}};
  Tensor out{DType::f64, 2, 2};
  Tensor inverse{DType::f64, 1, 2};

  kernels_->rms_norm(out, inverse, in, weight, 0.25);

  const double first = 1 / std::sqrt(25.25);
  EXPECT_THAT(inverse.values(), ElementsAre(DoubleNear(first, few_roundings), DoubleNear(2, few_roundings)));
  EXPECT_THAT(out.values(), ElementsAre(DoubleNear(first, few_roundings), DoubleNear(14 * first, few_roundings), 0, 0));
}

TEST_F(ReferenceKernels, SubtractTheMeanInLayerNorm) {
  Tensor in{DType::f64, 1, 2, {1, 3}};
  Tensor weight{DType::f64, 1, 2, {2, 4}};
  Tensor bias{DType::f64, 1, 2, {0.5, 0.25}};
  Tensor out{DType::f64, 1, 2};
  Tensor mean{DType::f64, 1, 1};
  Tensor inverse{DType::f64, 1, 1};

  kernels_->layer_norm(out, mean, inverse, in, weight, bias, 3.0);

  EXPECT_THAT(mean.values(), ElementsAre(2));
  EXPECT_THAT(inverse.values(), ElementsAre(0.5));
  EXPECT_THAT(out.values(), ElementsAre(-0.5, 2.25));
}

TEST_F(ReferenceKernels, RoundTheNormGradientBeforeAndAfterTheResidual) {
  Tensor in{DType::bf16, 1, 1, {1}};
  Tensor inverse{DType::f32, 1, 1, {257.0 / 256}};  // a gradient of 257/256, a tie: rounds to 1
  Tensor mean{DType::f32, 1, 1, {0}};
  Tensor weight{DType::bf16, 1, 1, {1}};
  Tensor residual{DType::bf16, 1, 1, {256}};
  Tensor weight_gradient{DType::f32, 1, 1};
  Tensor in_gradient{DType::bf16, 1, 1, {1}};
  in.set(0, 0.0);

  kernels_->rms_norm_gradient(in_gradient, weight_gradient, in_gradient, in, inverse, weight, residual);

  EXPECT_EQ(in_gradient[0], 256.0);  // 256 + 1 is a tie again; 256 + 257/256 at once would be 258
}

TEST_F(ReferenceKernels, MultiplyRowsByRows) {
  Tensor in{DType::f64, 2, 2, {1, 2, 3, 4}};
  Tensor weight{DType::f64, 3, 2, {1, 0, 0, 1, 10, 100}};
  Tensor bias{DType::f64, 1, 3, {0, 0.5, 1}};
  Tensor out{DType::f64, 2, 3};

  kernels_->linear(out, in, weight, {});
  EXPECT_THAT(out.values(), ElementsAre(1, 2, 210, 3, 4, 430));

  kernels_->linear(out, in, weight, bias);
  EXPECT_THAT(out.values(), ElementsAre(1, 2.5, 211, 3, 4.5, 431));
}

TEST_F(ReferenceKernels, MultiplyGradientsByTheWeightAndByTheInput) {
  Tensor in{DType::f64, 2, 2, {1, 2, 3, 4}};
  Tensor weight{DType::f64, 1, 2, {10, 100}};
  Tensor out_gradient{DType::f64, 2, 1, {2, 3}};
  Tensor in_gradient{DType::f64, 2, 2, {1, 1, 1, 1}};
  Tensor weight_gradient{DType::f64, 1, 2, {0.5, 0.25}};
  Tensor bias_gradient{DType::f64, 1, 1, {0.5}};

  kernels_->linear_input_gradient(in_gradient, out_gradient, weight, Kernels::Write::accumulate);
  EXPECT_THAT(in_gradient.values(), ElementsAre(21, 201, 31, 301));
  kernels_->linear_input_gradient(in_gradient, out_gradient, weight, Kernels::Write::overwrite);
  EXPECT_THAT(in_gradient.values(), ElementsAre(20, 200, 30, 300));
  kernels_->linear_weight_gradient(weight_gradient, out_gradient, in);
  EXPECT_THAT(weight_gradient.values(), ElementsAre(11.5, 16.25));
  kernels_->bias_gradient(bias_gradient, out_gradient);
  EXPECT_THAT(bias_gradient.values(), ElementsAre(5.5));
}

TEST_F(ReferenceKernels, RotateHalfSplitPairsByTheirPosition) {
  // Two heads of size 4; one sequence of two tokens from position 1; theta = 1e-4 makes the second angle 100 times the
  // first.
  const std::vector<double> start{1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0};
  Tensor x{DType::f64, 2, 8, start};

  kernels_->rotate(x, 2, 2, 1, 1e-4, Kernels::Rotation::forward);

  for (std::int64_t token = 0; token < 2; ++token) {
    const double angle = static_cast<double>(token + 1);
    EXPECT_NEAR(x[8 * token + 0], std::cos(angle), few_roundings);
    EXPECT_NEAR(x[8 * token + 2], std::sin(angle), few_roundings);
    EXPECT_NEAR(x[8 * token + 1], -std::sin(100 * angle), 100 * few_roundings);
    EXPECT_NEAR(x[8 * token + 3], std::cos(100 * angle), 100 * few_roundings);
    EXPECT_EQ(x[8 * token + 4], 0);
  }

  kernels_->rotate(x, 2, 2, 1, 1e-4, Kernels::Rotation::inverse);

  for (std::int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], start[static_cast<std::size_t>(i)], few_roundings);
}

TEST_F(ReferenceKernels, StartPositionsAnewInEverySequence) {
  Tensor x{DType::f64, 4, 2, {1, 0, 1, 0, 1, 0, 1, 0}};

  kernels_->rotate(x, 1, 2, 0, 10000.0, Kernels::Rotation::forward);

  EXPECT_THAT(x.values(),
              ElementsAre(1, 0, DoubleNear(std::cos(1.0), few_roundings), DoubleNear(std::sin(1.0), few_roundings), 1,
                          0, DoubleNear(std::cos(1.0), few_roundings), DoubleNear(std::sin(1.0), few_roundings)));
}

TEST_F(ReferenceKernels, AttendToEarlierKeysOnlyWhenCausal) {
  // Zero queries: all scores are 0, the weights uniform over the keys that are seen.
  AttentionShape shape{.sequences = 1, .query_tokens = 2, .key_tokens = 2, .heads = 1, .kv_heads = 1, .head_size = 1};
  Tensor q{DType::f64, 2, 1, {0, 0}};
  Tensor k{DType::f64, 2, 1, {5, 7}};
  Tensor v{DType::f64, 2, 1, {10, 20}};
  Tensor out{DType::f64, 2, 1};
  Tensor log_sum_exp{DType::f64, 1, 2};

  kernels_->attention(shape, out, log_sum_exp, q, k, v);
  EXPECT_THAT(out.values(), ElementsAre(10, DoubleNear(15, 16 * few_roundings)));
  EXPECT_THAT(log_sum_exp.values(), ElementsAre(0, DoubleNear(std::numbers::ln2, few_roundings)));

  shape.causal = false;
  kernels_->attention(shape, out, log_sum_exp, q, k, v);
  EXPECT_THAT(out.values(), Each(DoubleNear(15, 16 * few_roundings)));
}

TEST_F(ReferenceKernels, ShareKeyHeadsBetweenNeighbouringQueryHeads) {
  // Four query heads on two key heads of size 1, one token each of two sequences: every head sees its own value alone.
  const AttentionShape shape{
      .sequences = 2, .query_tokens = 1, .key_tokens = 1, .heads = 4, .kv_heads = 2, .head_size = 1};
  Tensor q{DType::f64, 2, 4, {1, 2, 3, 4, 5, 6, 7, 8}};
  Tensor k{DType::f64, 2, 2, {1, 10, 2, 20}};
  Tensor v{DType::f64, 2, 2, {0.1, 0.2, 0.3, 0.4}};
  Tensor out{DType::f64, 2, 4};
  Tensor log_sum_exp{DType::f64, 4, 2};

  kernels_->attention(shape, out, log_sum_exp, q, k, v);

  EXPECT_THAT(out.values(), ElementsAre(0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4));
  EXPECT_THAT(log_sum_exp.values(), ElementsAre(1, 10, 2, 12, 30, 140, 40, 160));
}

TEST_F(ReferenceKernels, ScaleScoresByTheRootOfTheHeadSize) {
  const AttentionShape shape{.query_tokens = 1, .key_tokens = 1, .head_size = 4};
  Tensor q{DType::f64, 1, 4, {1, 1, 1, 1}};
  Tensor k{DType::f64, 1, 4, {1, 2, 3, 4}};
  Tensor v{DType::f64, 1, 4, {0, 0, 0, 0}};
  Tensor out{DType::f64, 1, 4};
  Tensor log_sum_exp{DType::f64, 1, 1};

  kernels_->attention(shape, out, log_sum_exp, q, k, v);

  EXPECT_EQ(log_sum_exp[0], 5.0);
}

TEST_F(ReferenceKernels, KeepLargeScoresFinite) {
  const AttentionShape shape{.query_tokens = 2, .key_tokens = 2, .head_size = 1};
  Tensor q{DType::f64, 2, 1, {1000, 1000}};
  Tensor k{DType::f64, 2, 1, {1, 2}};
  Tensor v{DType::f64, 2, 1, {3, 4}};
  Tensor out{DType::f64, 2, 1};
  Tensor log_sum_exp{DType::f64, 1, 2};

  kernels_->attention(shape, out, log_sum_exp, q, k, v);

  EXPECT_THAT(out.values(), ElementsAre(3, 4));
  EXPECT_THAT(log_sum_exp.values(), ElementsAre(1000, 2000));
}

TEST_F(ReferenceKernels, RoundTheResidualStreamAfterAnAdd) {
  Tensor a{DType::bf16, 1, 3, {256, 256, 1}};
  Tensor b{DType::bf16, 1, 3, {1, 3, 2}};

  kernels_->add(a, a, b);

  EXPECT_THAT(a.values(), ElementsAre(256, 260, 3));
}

TEST_F(ReferenceKernels, GateWithSilu) {
  Tensor gate{DType::f64, 1, 3, {0, std::numbers::ln2, -800}};
  Tensor up{DType::f64, 1, 3, {5, 3, 1}};
  Tensor out{DType::f64, 1, 3};

  kernels_->swiglu(out, gate, up);

  EXPECT_THAT(out.values(), ElementsAre(0, DoubleNear(2 * std::numbers::ln2, few_roundings), 0));
}

TEST_F(ReferenceKernels, UseTheTanhFormOfGelu) {
  Tensor in{DType::f64, 1, 3, {0, 1, -30}};
  Tensor out{DType::f64, 1, 3};

  kernels_->gelu(out, in);

  EXPECT_THAT(out.values(), ElementsAre(0, DoubleNear(0.8411919906082768, few_roundings), 0));
}

TEST_F(ReferenceKernels, ZeroOnlyTheColumnsOfTheMatrix) {
  Tensor memory{DType::f32, 2, 3, {1, 2, 3, 4, 5, 6}};
  Matrix part = memory.matrix();
  part.columns = 2;

  kernels_->zero(part);

  EXPECT_THAT(memory.values(), ElementsAre(0, 0, 3, 0, 0, 6));
}

TEST_F(ReferenceKernels, CopyEveryBitOfTheirRows) {
  Tensor in{DType::f32, 2, 3, {-0.0, 2, 3, 4, 5, 6}};
  Tensor out{DType::f32, 2, 3, {9, 9, 9, 9, 9, 9}};
  Matrix part = out.matrix();
  part.columns = 2;
  ConstMatrix from = in.matrix();
  from.columns = 2;

  kernels_->copy(part, from);

  EXPECT_THAT(out.values(), ElementsAre(0, 2, 9, 4, 5, 9));
  EXPECT_TRUE(std::signbit(out.values().front()));
}

TEST_F(ReferenceKernels, HonourTheStridesOfTheirOperands) {
  Tensor memory{DType::f64, 2, 3, {1, 2, 99, 3, 4, 99}};
  ConstMatrix in = memory.matrix();
  in.columns = 2;
  Tensor weight{DType::f64, 1, 2, {1, 10}};
  Tensor out{DType::f64, 2, 1};

  kernels_->linear(out, in, weight, {});

  EXPECT_THAT(out.values(), ElementsAre(21, 43));
}

TEST_F(ReferenceKernels, LoseTheLogarithmOfTheVocabularyOnEqualLogits) {
  Tensor logits{DType::f64, 2, 4, {7, 7, 7, 7, 0, 0, 0, 0}};
  Tensor targets{DType::i32, 1, 2, {3, -1}};
  Tensor losses{DType::f64, 1, 2};
  Tensor log_sum_exp{DType::f64, 1, 2};

  kernels_->cross_entropy(losses, log_sum_exp, logits, targets);

  const double four = 2 * std::numbers::ln2;
  EXPECT_THAT(losses.values(), ElementsAre(DoubleNear(four, 4 * few_roundings), 0));
  EXPECT_THAT(log_sum_exp.values(),
              ElementsAre(DoubleNear(7 + four, 8 * few_roundings), DoubleNear(four, few_roundings)));
}

TEST_F(ReferenceKernels, PullLogitsTowardsTheTarget) {
  Tensor logits{DType::f64, 2, 4, {7, 7, 7, 7, 0, 0, 0, 0}};
  Tensor targets{DType::i32, 1, 2, {3, -1}};
  Tensor log_sum_exp{DType::f64, 1, 2, {7 + 2 * std::numbers::ln2, 2 * std::numbers::ln2}};
  Tensor gradient{DType::f64, 2, 4};

  kernels_->cross_entropy_gradient(gradient, logits, log_sum_exp, targets, 2.0);

  const auto near = [](double value) { return DoubleNear(value, 8 * few_roundings); };
  EXPECT_THAT(gradient.values(), ElementsAre(near(0.5), near(0.5), near(0.5), near(-1.5), 0, 0, 0, 0));
}

TEST_F(ReferenceKernels, PullNoLogitOfAPartWithoutTheTarget) {
  Tensor logits{DType::f64, 2, 2, {7, 7, 7, 7}};
  Tensor targets{DType::i32, 1, 2, {static_cast<double>(target_elsewhere), -1}};
  Tensor log_sum_exp{DType::f64, 1, 2, {7 + 2 * std::numbers::ln2, 7 + 2 * std::numbers::ln2}};
  Tensor gradient{DType::f64, 2, 2};
  Tensor losses{DType::f64, 1, 2};

  kernels_->cross_entropy_gradient(gradient, logits, log_sum_exp, targets, 2.0);
  kernels_->cross_entropy(losses, log_sum_exp, logits, targets);

  const auto near = [](double value) { return DoubleNear(value, 8 * few_roundings); };
  EXPECT_THAT(gradient.values(), ElementsAre(near(0.5), near(0.5), 0, 0));
  EXPECT_THAT(losses.values(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace penstock::test
