// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference_kernels.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::reference {

void ReferenceKernels::linear(Matrix out, ConstMatrix in, ConstMatrix weight, ConstMatrix bias) {
  expect_shape("linear", "out", out, in.rows, weight.rows);
  expect_shape("linear", "weight", weight, weight.rows, in.columns);
  if (bias) expect_shape("linear", "bias", bias, 1, weight.rows);
  const Values x = load(in);
  const Values w = load(weight);
  for (std::int64_t t = 0; t < in.rows; ++t) {
    for (std::int64_t n = 0; n < weight.rows; ++n) {
      double sum = bias ? element(bias, 0, n) : 0.0;
      for (std::int64_t k = 0; k < in.columns; ++k) sum += x(t, k) * w(n, k);
      set_element(out, t, n, sum);
    }
  }
}

void ReferenceKernels::linear_input_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix weight,
                                             Write write) {
  expect_shape("linear_input_gradient", "in_gradient", in_gradient, out_gradient.rows, weight.columns);
  expect_shape("linear_input_gradient", "weight", weight, out_gradient.columns, weight.columns);
  const Values upstream = load(out_gradient);
  const Values w = load(weight);
  Values result{in_gradient.rows, in_gradient.columns};
  for (std::int64_t t = 0; t < upstream.rows; ++t) {
    for (std::int64_t n = 0; n < w.rows; ++n) {
      for (std::int64_t k = 0; k < w.columns; ++k) result(t, k) += upstream(t, n) * w(n, k);
    }
  }
  write == Write::overwrite ? store(in_gradient, result) : add_to(in_gradient, result);
}

void ReferenceKernels::linear_weight_gradient(Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in) {
  expect_shape("linear_weight_gradient", "weight_gradient", weight_gradient, out_gradient.columns, in.columns);
  expect_shape("linear_weight_gradient", "in", in, out_gradient.rows, in.columns);
  const Values upstream = load(out_gradient);
  const Values x = load(in);
  Values result{weight_gradient.rows, weight_gradient.columns};
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t n = 0; n < upstream.columns; ++n) {
      for (std::int64_t k = 0; k < x.columns; ++k) result(n, k) += upstream(t, n) * x(t, k);
    }
  }
  add_to(weight_gradient, result);
}

void ReferenceKernels::bias_gradient(Matrix bias_gradient, ConstMatrix out_gradient) {
  expect_shape("bias_gradient", "bias_gradient", bias_gradient, 1, out_gradient.columns);
  Values result{1, out_gradient.columns};
  for (std::int64_t t = 0; t < out_gradient.rows; ++t) {
    for (std::int64_t n = 0; n < out_gradient.columns; ++n) result(0, n) += element(out_gradient, t, n);
  }
  add_to(bias_gradient, result);
}

}  // namespace penstock::reference
