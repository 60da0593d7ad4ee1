// SPDX-License-Identifier: Apache-2.0
//
// Rows of the normalizations. x^ is the normalized input, g = out_gradient * weight. The weight gradients go to partial
// sums [columns] of a block of rows, which the caller adds up in the order of the blocks.
#pragma once

#include "kernels/unified/body.hpp"

namespace penstock::unified {

/// Stores d in, and if there is a residual, round(residual + round(d in)).
template <class At, class S, class V>
PENSTOCK_BODY void store_with_residual(At at, S* in_gradient, const S* residual, V gradient) {
  if (residual == nullptr) {
    at.store(in_gradient, gradient);
  } else {
    at.store(in_gradient, at.load(residual) + at.template rounded<S>(gradient));
  }
}

template <class Team, class S>
PENSTOCK_BODY void rms_norm_row(Team team, std::int64_t columns, S* out, float* inverse_rms, const S* in,
                                const S* weight, float epsilon) {
  const float squares = team.sum(columns, [=](auto at) {
    const auto x = at.load(in);
    return x * x;
  });
  const float inverse = 1.0F / team.root(squares / static_cast<float>(columns) + epsilon);
  team.each(columns, [=](auto at) { at.store(out, at.load(in) * inverse * at.load(weight)); });
  *inverse_rms = inverse;
}

/// d in = (g - x^ mean(g x^)) / rms.
template <class Team, class S>
PENSTOCK_BODY void rms_norm_gradient_row(Team team, std::int64_t columns, S* in_gradient, float* weight_partial,
                                         const S* out_gradient, const S* in, float inverse, const S* weight,
                                         const S* residual) {
  const float projection = team.sum(columns, [=](auto at) {
    return at.load(out_gradient) * at.load(weight) * at.load(in);
  }) * inverse / static_cast<float>(columns);
  team.each(columns, [=](auto at) {
    const auto gradient = at.load(out_gradient);
    const auto normalized = at.load(in) * inverse;
    at.store(weight_partial, at.load(weight_partial) + gradient * normalized);
    store_with_residual(at, in_gradient, residual, (gradient * at.load(weight) - normalized * projection) * inverse);
  });
}

template <class Team, class S>
PENSTOCK_BODY void layer_norm_row(Team team, std::int64_t columns, S* out, float* mean_out, float* inverse_out,
                                  const S* in, const S* weight, const S* bias, float epsilon) {
  const auto count = static_cast<float>(columns);
  const float mean = team.sum(columns, [=](auto at) { return at.load(in); }) / count;
  const float squares = team.sum(columns, [=](auto at) {
    const auto x = at.load(in) - mean;
    return x * x;
  });
  const float inverse = 1.0F / team.root(squares / count + epsilon);
  team.each(columns, [=](auto at) { at.store(out, (at.load(in) - mean) * inverse * at.load(weight) + at.load(bias)); });
  *mean_out = mean;
  *inverse_out = inverse;
}

/// d in = (g - mean(g) - x^ mean(g x^)) / deviation.
template <class Team, class S>
PENSTOCK_BODY void layer_norm_gradient_row(Team team, std::int64_t columns, S* in_gradient, float* weight_partial,
                                           float* bias_partial, const S* out_gradient, const S* in, float mean,
                                           float inverse, const S* weight, const S* residual) {
  const auto count = static_cast<float>(columns);
  const float average = team.sum(columns, [=](auto at) { return at.load(out_gradient) * at.load(weight); }) / count;
  const float projection = team.sum(columns, [=](auto at) {
    return at.load(out_gradient) * at.load(weight) * (at.load(in) - mean);
  }) * inverse / count;
  team.each(columns, [=](auto at) {
    const auto gradient = at.load(out_gradient);
    const auto normalized = (at.load(in) - mean) * inverse;
    at.store(weight_partial, at.load(weight_partial) + gradient * normalized);
    at.store(bias_partial, at.load(bias_partial) + gradient);
    store_with_residual(at, in_gradient, residual,
                        (gradient * at.load(weight) - average - normalized * projection) * inverse);
  });
}

}  // namespace penstock::unified
