// SPDX-License-Identifier: Apache-2.0
//
// Formulas of single elements. Large arguments saturate, and a NaN stays one: a diverging run must be seen.
#pragma once

#include "kernels/unified/body.hpp"

namespace penstock::unified {

/// 1 / (1 + e^-x); `exponential` is bounded, so that no infinity divides one.
template <class V>
PENSTOCK_BODY V sigmoid(V x) {
  return V{1.0F} / (V{1.0F} + exponential(V{0.0F} - x));
}

/// Twice the argument of the tanh of gelu: 2 sqrt(2/pi) (x + 0.044715 x^3).
template <class V>
PENSTOCK_BODY V twice_gelu_argument(V x) {
  return V{1.5957691216057308F} * x * fused(V{0.044715F} * x, x, V{1.0F});
}

/// x (1 + tanh u) / 2 = x sigmoid(2 u).
template <class V>
PENSTOCK_BODY V gelu(V x) {
  return x * sigmoid(twice_gelu_argument(x));
}

/// The derivative s + x s (1 - s) 2 u', s = sigmoid(2 u). Beyond +-10 the second term is below the smallest float, and
/// bounding x keeps u' finite.
template <class V>
PENSTOCK_BODY V gelu_derivative(V x) {
  const V s = sigmoid(twice_gelu_argument(x));
  const V bounded = larger(V{-10.0F}, smaller(V{10.0F}, x));
  const V slope = V{1.5957691216057308F} * fused(V{3.0F * 0.044715F} * bounded, bounded, V{1.0F});
  return fused(bounded * s * (V{1.0F} - s), slope, s);
}

template <class V>
PENSTOCK_BODY V silu(V x) {
  return x * sigmoid(x);
}

/// s (1 + x (1 - s)), s = sigmoid(x).
template <class V>
PENSTOCK_BODY V silu_derivative(V x) {
  const V s = sigmoid(x);
  return s * fused(x, V{1.0F} - s, V{1.0F});
}

}  // namespace penstock::unified
