// SPDX-License-Identifier: Apache-2.0
//
// Rows of elementwise operations; an output may be the memory of an input.
#pragma once

#include "kernels/unified/formulas.hpp"

namespace penstock::unified {

template <class Team, class S>
PENSTOCK_BODY void add_row(Team team, std::int64_t columns, S* out, const S* a, const S* b) {
  team.each(columns, [=](auto at) { at.store(out, at.load(a) + at.load(b)); });
}

template <class Team, class S>
PENSTOCK_BODY void gelu_row(Team team, std::int64_t columns, S* out, const S* in) {
  team.each(columns, [=](auto at) { at.store(out, gelu(at.load(in))); });
}

template <class Team, class S>
PENSTOCK_BODY void gelu_gradient_row(Team team, std::int64_t columns, S* in_gradient, const S* out_gradient,
                                     const S* in) {
  team.each(columns, [=](auto at) { at.store(in_gradient, at.load(out_gradient) * gelu_derivative(at.load(in))); });
}

template <class Team, class S>
PENSTOCK_BODY void swiglu_row(Team team, std::int64_t columns, S* out, const S* gate, const S* up) {
  team.each(columns, [=](auto at) { at.store(out, silu(at.load(gate)) * at.load(up)); });
}

template <class Team, class S>
PENSTOCK_BODY void swiglu_gradient_row(Team team, std::int64_t columns, S* gate_gradient, S* up_gradient,
                                       const S* out_gradient, const S* gate, const S* up) {
  team.each(columns, [=](auto at) {
    const auto gradient = at.load(out_gradient);
    const auto x = at.load(gate);
    const auto y = at.load(up);
    at.store(gate_gradient, gradient * y * silu_derivative(x));
    at.store(up_gradient, gradient * silu(x));
  });
}

/// One head: rotates the pairs (i, i + half) of x by the angles whose cosines and sines are given, half of each.
template <class Team, class S>
PENSTOCK_BODY void rotate_head(Team team, std::int64_t half, S* x, const float* cosines, const float* sines,
                               float sign) {
  S* const y = x + half;
  team.each(half, [=](auto at) {
    const auto first = at.load(x);
    const auto second = at.load(y);
    const auto cosine = at.load(cosines);
    const auto sine = at.load(sines) * sign;
    at.store(x, first * cosine - second * sine);
    at.store(y, second * cosine + first * sine);
  });
}

}  // namespace penstock::unified
