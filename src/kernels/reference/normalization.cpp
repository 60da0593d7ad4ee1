// SPDX-License-Identifier: Apache-2.0
//
// With x^ = (x - mean) r, r = 1 / deviation (mean = 0 and r = 1 / rms for RMSNorm), y = x^ w + b and u = w dy:
//   dx = r (u - mean(u) - x^ mean(u x^))   (RMSNorm: without mean(u)),   dw = sum_t dy x^,   db = sum_t dy.
#include <cmath>

#include "kernels/reference/reference_kernels.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::reference {
namespace {

double mean_of(const double* row, std::int64_t columns) {
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += row[c];
  return sum / static_cast<double>(columns);
}

// Mean of (row[c] - shift)^2.
double mean_square(const double* row, std::int64_t columns, double shift) {
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += (row[c] - shift) * (row[c] - shift);
  return sum / static_cast<double>(columns);
}

// round(residual + round(dx)), or round(dx) without a residual.
void store_gradient(const Matrix& in_gradient, const ConstMatrix& residual, const Values& gradient) {
  if (!residual) {
    store(in_gradient, gradient);
    return;
  }
  const Values kept = load(residual);  // before the store: they may share memory
  store(in_gradient, gradient);
  add_to(in_gradient, kept);
}

struct NormGradient {
  Values input;
  Values weight;
  Values bias;
};

enum class Centered : std::uint8_t { no, yes };

// One row of the formulas above; `normalized` is x^.
void row_gradient(NormGradient& result, std::int64_t t, const double* out_gradient, const double* normalized,
                  const Values& weight, double inverse, Centered centered) {
  const std::int64_t columns = result.input.columns;
  double mean_u = 0;
  double mean_ux = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    const double u = weight(0, c) * out_gradient[c];
    mean_u += u;
    mean_ux += u * normalized[c];
    result.weight(0, c) += out_gradient[c] * normalized[c];
    result.bias(0, c) += out_gradient[c];
  }
  mean_u = centered == Centered::yes ? mean_u / static_cast<double>(columns) : 0.0;
  mean_ux /= static_cast<double>(columns);
  for (std::int64_t c = 0; c < columns; ++c) {
    result.input(t, c) = inverse * (weight(0, c) * out_gradient[c] - mean_u - normalized[c] * mean_ux);
  }
}

// `mean` is empty for RMSNorm.
NormGradient gradients(const ConstMatrix& out_gradient, const ConstMatrix& in, const ConstMatrix& mean,
                       const ConstMatrix& inverse, const ConstMatrix& weight) {
  NormGradient result{Values{in.rows, in.columns}, Values{1, in.columns}, Values{1, in.columns}};
  const Values upstream = load(out_gradient);
  const Values weights = load(weight);
  Values normalized = load(in);
  for (std::int64_t t = 0; t < in.rows; ++t) {
    const double shift = mean ? element(mean, 0, t) : 0.0;
    const double scale = element(inverse, 0, t);
    for (std::int64_t c = 0; c < in.columns; ++c) normalized(t, c) = (normalized(t, c) - shift) * scale;
    row_gradient(result, t, upstream.row(t), normalized.row(t), weights, scale, mean ? Centered::yes : Centered::no);
  }
  return result;
}

// What both norms' gradients share.
void check_gradient(std::string_view operation, const Matrix& in_gradient, const ConstMatrix& out_gradient,
                    const ConstMatrix& in, const ConstMatrix& inverse, const ConstMatrix& weight,
                    const ConstMatrix& residual) {
  expect_shape(operation, "in_gradient", in_gradient, in.rows, in.columns);
  expect_shape(operation, "out_gradient", out_gradient, in.rows, in.columns);
  expect_shape(operation, "inverse statistic", inverse, 1, in.rows);
  expect_shape(operation, "weight", weight, 1, in.columns);
  if (residual) expect_shape(operation, "residual", residual, in.rows, in.columns);
}

}  // namespace

void ReferenceKernels::rms_norm(Matrix out, Matrix inverse_rms, ConstMatrix in, ConstMatrix weight, double epsilon) {
  expect_shape("rms_norm", "out", out, in.rows, in.columns);
  expect_shape("rms_norm", "inverse_rms", inverse_rms, 1, in.rows);
  expect_shape("rms_norm", "weight", weight, 1, in.columns);
  Values result = load(in);
  for (std::int64_t t = 0; t < in.rows; ++t) {
    const double inverse = 1.0 / std::sqrt(mean_square(result.row(t), in.columns, 0.0) + epsilon);
    set_element(inverse_rms, 0, t, inverse);
    for (std::int64_t c = 0; c < in.columns; ++c) result(t, c) *= inverse * element(weight, 0, c);
  }
  store(out, result);
}

void ReferenceKernels::rms_norm_gradient(Matrix in_gradient, Matrix weight_gradient, ConstMatrix out_gradient,
                                         ConstMatrix in, ConstMatrix inverse_rms, ConstMatrix weight,
                                         ConstMatrix residual) {
  check_gradient("rms_norm_gradient", in_gradient, out_gradient, in, inverse_rms, weight, residual);
  expect_shape("rms_norm_gradient", "weight_gradient", weight_gradient, 1, in.columns);
  const NormGradient gradient = gradients(out_gradient, in, ConstMatrix{}, inverse_rms, weight);
  store_gradient(in_gradient, residual, gradient.input);
  add_to(weight_gradient, gradient.weight);
}

void ReferenceKernels::layer_norm(Matrix out, Matrix mean, Matrix inverse_deviation, ConstMatrix in, ConstMatrix weight,
                                  ConstMatrix bias, double epsilon) {
  expect_shape("layer_norm", "out", out, in.rows, in.columns);
  expect_shape("layer_norm", "mean", mean, 1, in.rows);
  expect_shape("layer_norm", "inverse_deviation", inverse_deviation, 1, in.rows);
  expect_shape("layer_norm", "weight", weight, 1, in.columns);
  expect_shape("layer_norm", "bias", bias, 1, in.columns);
  Values result = load(in);
  for (std::int64_t t = 0; t < in.rows; ++t) {
    const double shift = mean_of(result.row(t), in.columns);
    const double inverse = 1.0 / std::sqrt(mean_square(result.row(t), in.columns, shift) + epsilon);
    set_element(mean, 0, t, shift);
    set_element(inverse_deviation, 0, t, inverse);
    for (std::int64_t c = 0; c < in.columns; ++c) {
      result(t, c) = (result(t, c) - shift) * inverse * element(weight, 0, c) + element(bias, 0, c);
    }
  }
  store(out, result);
}

void ReferenceKernels::layer_norm_gradient(Matrix in_gradient, Matrix weight_gradient, Matrix bias_gradient,
                                           ConstMatrix out_gradient, ConstMatrix in, ConstMatrix mean,
                                           ConstMatrix inverse_deviation, ConstMatrix weight, ConstMatrix residual) {
  check_gradient("layer_norm_gradient", in_gradient, out_gradient, in, inverse_deviation, weight, residual);
  expect_shape("layer_norm_gradient", "mean", mean, 1, in.rows);
  expect_shape("layer_norm_gradient", "weight_gradient", weight_gradient, 1, in.columns);
  expect_shape("layer_norm_gradient", "bias_gradient", bias_gradient, 1, in.columns);
  const NormGradient gradient = gradients(out_gradient, in, mean, inverse_deviation, weight);
  store_gradient(in_gradient, residual, gradient.input);
  add_to(weight_gradient, gradient.weight);
  add_to(bias_gradient, gradient.bias);
}

}  // namespace penstock::reference
