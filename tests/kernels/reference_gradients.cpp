// SPDX-License-Identifier: Apache-2.0
//
// The gradient operations of the reference kernels against central differences of the forward ones, in double.
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/kernels.hpp"
#include "reference_tensor.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

// Central differences of functions around 1 with this step err by about 1e-10 in truncation and in rounding.
constexpr double step = 1e-5;
constexpr double slope_tolerance = 1e-8;

// Values in [-1, 1), different for different `salt`.
Tensor varied(std::int64_t rows, std::int64_t columns, std::int64_t salt) {
  Tensor tensor{DType::f64, rows, columns};
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, static_cast<double>((i * i * 31 + i * 797 + salt * 1013) % 2003) / 1001.5 - 1.0);
  }
  return tensor;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The slopes of `function` by every element of `at`.
std::vector<double> slopes(Tensor& at, const std::function<double()>& function) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    at.set(i, value + step);
    const double above = function();
    at.set(i, value - step);
    result.push_back((above - function()) / (2 * step));
    at.set(i, value);
  }
  return result;
}

class ReferenceGradients : public testing::Test {
 protected:
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
};

TEST_F(ReferenceGradients, OfRmsNormMatchItsSlopes) {
  Tensor in = varied(3, 5, 1);
  Tensor weight = varied(1, 5, 2);
  Tensor upstream = varied(3, 5, 3);
  Tensor out{DType::f64, 3, 5};
  Tensor inverse{DType::f64, 1, 3};
  const auto function = [&] {
    kernels_->rms_norm(out, inverse, in, weight, 1e-5);
    return dot(out, upstream);
  };
  Tensor in_gradient{DType::f64, 3, 5};
  Tensor weight_gradient{DType::f64, 1, 5};

  function();
  kernels_->rms_norm_gradient(in_gradient, weight_gradient, upstream, in, inverse, weight, {});

  EXPECT_TENSOR_NEAR(in_gradient.values(), slopes(in, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(weight_gradient.values(), slopes(weight, function), slope_tolerance);
}

TEST_F(ReferenceGradients, OfLayerNormMatchItsSlopes) {
  Tensor in = varied(3, 5, 1);
  Tensor weight = varied(1, 5, 2);
  Tensor bias = varied(1, 5, 4);
  Tensor upstream = varied(3, 5, 3);
  Tensor out{DType::f64, 3, 5};
  Tensor mean{DType::f64, 1, 3};
  Tensor inverse{DType::f64, 1, 3};
  const auto function = [&] {
    kernels_->layer_norm(out, mean, inverse, in, weight, bias, 1e-5);
    return dot(out, upstream);
  };
  Tensor in_gradient{DType::f64, 3, 5};
  Tensor weight_gradient{DType::f64, 1, 5};
  Tensor bias_gradient{DType::f64, 1, 5};

  function();
  kernels_->layer_norm_gradient(in_gradient, weight_gradient, bias_gradient, upstream, in, mean, inverse, weight, {});

  EXPECT_TENSOR_NEAR(in_gradient.values(), slopes(in, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(weight_gradient.values(), slopes(weight, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(bias_gradient.values(), slopes(bias, function), slope_tolerance);
}

TEST_F(ReferenceGradients, OfANormAddTheResidualsGradient) {
  Tensor in = varied(3, 5, 1);
  Tensor weight = varied(1, 5, 2);
  Tensor upstream = varied(3, 5, 3);
  Tensor residual = varied(3, 5, 4);
  Tensor inverse{DType::f64, 1, 3, {1.5, 2.5, 0.5}};
  Tensor alone{DType::f64, 3, 5};
  Tensor with{DType::f64, 3, 5};
  Tensor weight_gradient{DType::f64, 1, 5};

  kernels_->rms_norm_gradient(alone, weight_gradient, upstream, in, inverse, weight, {});
  kernels_->rms_norm_gradient(with, weight_gradient, upstream, in, inverse, weight, residual);

  for (std::int64_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i], alone[i] + residual[i]);
}

TEST_F(ReferenceGradients, OfALinearLayerMatchItsSlopes) {
  Tensor in = varied(3, 4, 1);
  Tensor weight = varied(5, 4, 2);
  Tensor bias = varied(1, 5, 4);
  Tensor upstream = varied(3, 5, 3);
  Tensor out{DType::f64, 3, 5};
  const auto function = [&] {
    kernels_->linear(out, in, weight, bias);
    return dot(out, upstream);
  };
  Tensor in_gradient{DType::f64, 3, 4};
  Tensor weight_gradient{DType::f64, 5, 4};
  Tensor bias_gradient{DType::f64, 1, 5};

  kernels_->linear_input_gradient(in_gradient, upstream, weight, Kernels::Write::overwrite);
  kernels_->linear_weight_gradient(weight_gradient, upstream, in);
  kernels_->bias_gradient(bias_gradient, upstream);

  EXPECT_TENSOR_NEAR(in_gradient.values(), slopes(in, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(weight_gradient.values(), slopes(weight, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(bias_gradient.values(), slopes(bias, function), slope_tolerance);
}

class ReferenceAttentionGradients : public ReferenceGradients, public testing::WithParamInterface<AttentionShape> {};

TEST_P(ReferenceAttentionGradients, MatchTheSlopesOfAttention) {
  const AttentionShape& shape = GetParam();
  const std::int64_t queries = shape.sequences * shape.query_tokens;
  const std::int64_t keys = shape.sequences * shape.key_tokens;
  const std::int64_t width = shape.heads * shape.head_size;
  const std::int64_t kv_width = shape.kv_heads * shape.head_size;
  Tensor q = varied(queries, width, 1);
  Tensor k = varied(keys, kv_width, 2);
  Tensor v = varied(keys, kv_width, 3);
  Tensor upstream = varied(queries, width, 4);
  Tensor out{DType::f64, queries, width};
  Tensor log_sum_exp{DType::f64, shape.heads, queries};
  const auto function = [&] {
    kernels_->attention(shape, out, log_sum_exp, q, k, v);
    return dot(out, upstream);
  };
  Tensor dq{DType::f64, queries, width};
  Tensor dk{DType::f64, keys, kv_width};
  Tensor dv{DType::f64, keys, kv_width};

  function();
  kernels_->attention_gradient(shape, dq, dk, dv, upstream, out, log_sum_exp, q, k, v);

  EXPECT_TENSOR_NEAR(dq.values(), slopes(q, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(dk.values(), slopes(k, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(dv.values(), slopes(v, function), slope_tolerance);
}

INSTANTIATE_TEST_SUITE_P(, ReferenceAttentionGradients,
                         testing::Values(AttentionShape{.sequences = 2,
                                                        .query_tokens = 5,
                                                        .key_tokens = 5,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .head_size = 3,
                                                        .causal = true},
                                         AttentionShape{.sequences = 2,
                                                        .query_tokens = 3,
                                                        .key_tokens = 5,
                                                        .heads = 2,
                                                        .kv_heads = 1,
                                                        .head_size = 4,
                                                        .causal = false},
                                         AttentionShape{.sequences = 1,
                                                        .query_tokens = 4,
                                                        .key_tokens = 4,
                                                        .heads = 3,
                                                        .kv_heads = 3,
                                                        .head_size = 2,
                                                        .causal = true}),
                         [](const auto& one) {
                           return (one.param.causal ? "causal" : "whole") + std::to_string(one.index);
                         });

TEST_F(ReferenceGradients, OfARotationIsTheInverseRotation) {
  Tensor upstream = varied(4, 12, 1);
  Tensor x = varied(4, 12, 2);
  const auto function = [&] {
    Tensor turned = x;
    kernels_->rotate(turned, 2, 2, 3, 100.0, Kernels::Rotation::forward);
    return dot(turned, upstream);
  };
  Tensor gradient = upstream;

  kernels_->rotate(gradient, 2, 2, 3, 100.0, Kernels::Rotation::inverse);

  EXPECT_TENSOR_NEAR(gradient.values(), slopes(x, function), slope_tolerance);
}

TEST_F(ReferenceGradients, OfSwigluMatchItsSlopes) {
  Tensor gate = varied(3, 4, 1);
  Tensor up = varied(3, 4, 2);
  Tensor upstream = varied(3, 4, 3);
  Tensor out{DType::f64, 3, 4};
  const auto function = [&] {
    kernels_->swiglu(out, gate, up);
    return dot(out, upstream);
  };
  Tensor gate_gradient{DType::f64, 3, 4};
  Tensor up_gradient{DType::f64, 3, 4};

  kernels_->swiglu_gradient(gate_gradient, up_gradient, upstream, gate, up);

  EXPECT_TENSOR_NEAR(gate_gradient.values(), slopes(gate, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(up_gradient.values(), slopes(up, function), slope_tolerance);
}

TEST_F(ReferenceGradients, OfGeluMatchItsSlopes) {
  Tensor in = varied(3, 4, 1);
  Tensor upstream = varied(3, 4, 3);
  Tensor out{DType::f64, 3, 4};
  const auto function = [&] {
    kernels_->gelu(out, in);
    return dot(out, upstream);
  };
  Tensor in_gradient{DType::f64, 3, 4};

  kernels_->gelu_gradient(in_gradient, upstream, in);

  EXPECT_TENSOR_NEAR(in_gradient.values(), slopes(in, function), slope_tolerance);
}

TEST_F(ReferenceGradients, OfCrossEntropyMatchItsSlopes) {
  Tensor logits = varied(4, 5, 1);
  Tensor targets{DType::i32, 1, 4, {4, -1, 0, 2}};
  Tensor losses{DType::f64, 1, 4};
  Tensor log_sum_exp{DType::f64, 1, 4};
  const auto function = [&] {
    kernels_->cross_entropy(losses, log_sum_exp, logits, targets);
    return 3.0 * (losses[0] + losses[1] + losses[2] + losses[3]);
  };
  Tensor gradient{DType::f64, 4, 5};

  function();
  kernels_->cross_entropy_gradient(gradient, logits, log_sum_exp, targets, 3.0);

  EXPECT_TENSOR_NEAR(gradient.values(), slopes(logits, function), slope_tolerance);
}

TEST_F(ReferenceGradients, OfAnEmbeddingMatchItsSlopes) {
  Tensor tokens{DType::i32, 1, 4, {2, 0, 2, 2}};
  Tensor table = varied(3, 4, 1);
  Tensor positions = varied(5, 4, 2);
  Tensor upstream = varied(4, 4, 3);
  Tensor out{DType::f64, 4, 4};
  const auto function = [&] {
    kernels_->embedding(out, tokens, table, positions, 2, 1);
    return dot(out, upstream);
  };
  Tensor table_gradient{DType::f64, 3, 4};
  Tensor position_gradient{DType::f64, 5, 4};

  kernels_->embedding_gradient(table_gradient, position_gradient, upstream, tokens, 2, 1);

  EXPECT_TENSOR_NEAR(table_gradient.values(), slopes(table, function), slope_tolerance);
  EXPECT_TENSOR_NEAR(position_gradient.values(), slopes(positions, function), slope_tolerance);
}

}  // namespace
}  // namespace penstock::test
