// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "kernels/reference/reference_kernels.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

constexpr double gelu_cubic = 0.044715;

// The argument of the tanh: sqrt(2/pi) (x + 0.044715 x^3).
double gelu_argument(double x) {
  return std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + gelu_cubic * x * x * x);
}

double gelu_slope(double x) {
  const double tanh = std::tanh(gelu_argument(x));
  const double inner = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (1.0 + 3.0 * gelu_cubic * x * x);
  return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner;
}

template <class Body>
void for_each_element(const Matrix& matrix, const Body& body) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) body(row, column);
  }
}

}  // namespace

void ReferenceKernels::add(Matrix out, ConstMatrix a, ConstMatrix b) {
  expect_shape("add", "a", a, out.rows, out.columns);
  expect_shape("add", "b", b, out.rows, out.columns);
  for_each_element(out, [&](auto row, auto column) {
    set_element(out, row, column, element(a, row, column) + element(b, row, column));
  });
}

void ReferenceKernels::swiglu(Matrix out, ConstMatrix gate, ConstMatrix up) {
  expect_shape("swiglu", "gate", gate, out.rows, out.columns);
  expect_shape("swiglu", "up", up, out.rows, out.columns);
  for_each_element(out, [&](auto row, auto column) {
    const double x = element(gate, row, column);
    set_element(out, row, column, x * sigmoid(x) * element(up, row, column));
  });
}

void ReferenceKernels::swiglu_gradient(Matrix gate_gradient, Matrix up_gradient, ConstMatrix out_gradient,
                                       ConstMatrix gate, ConstMatrix up) {
  expect_shape("swiglu_gradient", "gate_gradient", gate_gradient, gate.rows, gate.columns);
  expect_shape("swiglu_gradient", "up_gradient", up_gradient, gate.rows, gate.columns);
  expect_shape("swiglu_gradient", "out_gradient", out_gradient, gate.rows, gate.columns);
  expect_shape("swiglu_gradient", "up", up, gate.rows, gate.columns);
  for_each_element(gate_gradient, [&](auto row, auto column) {
    const double x = element(gate, row, column);
    const double factor = element(up, row, column);
    const double upstream = element(out_gradient, row, column);
    const double s = sigmoid(x);
    set_element(gate_gradient, row, column, upstream * factor * s * (1.0 + x * (1.0 - s)));
    set_element(up_gradient, row, column, upstream * x * s);
  });
}

void ReferenceKernels::gelu(Matrix out, ConstMatrix in) {
  expect_shape("gelu", "in", in, out.rows, out.columns);
  for_each_element(out, [&](auto row, auto column) {
    const double x = element(in, row, column);
    set_element(out, row, column, 0.5 * x * (1.0 + std::tanh(gelu_argument(x))));
  });
}

void ReferenceKernels::gelu_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix in) {
  expect_shape("gelu_gradient", "in_gradient", in_gradient, in.rows, in.columns);
  expect_shape("gelu_gradient", "out_gradient", out_gradient, in.rows, in.columns);
  for_each_element(in_gradient, [&](auto row, auto column) {
    const double slope = gelu_slope(element(in, row, column));
    set_element(in_gradient, row, column, element(out_gradient, row, column) * slope);
  });
}

void ReferenceKernels::zero(Matrix out) {
  const std::int64_t size = size_of(out.type);
  for (std::int64_t row = 0; row < out.rows; ++row) {
    std::fill_n(out.data + row * out.stride * size, out.columns * size, std::byte{0});
  }
}

void ReferenceKernels::copy(Matrix out, ConstMatrix in) {
  expect_shape("copy", "in", in, out.rows, out.columns);
  require(in.type == out.type, "copy: the types differ");
  const std::int64_t size = size_of(out.type);
  for (std::int64_t row = 0; row < out.rows; ++row) {
    std::copy_n(in.data + row * in.stride * size, out.columns * size, out.data + row * out.stride * size);
  }
}

}  // namespace penstock::reference
