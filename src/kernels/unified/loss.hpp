// SPDX-License-Identifier: Apache-2.0
//
// Rows of the loss: logits are floats, `columns` is the vocabulary.
#pragma once

#include "kernels/unified/body.hpp"

namespace penstock::unified {

/// Returns log(sum(e^logit)).
template <class Team>
PENSTOCK_BODY float log_sum_exp_row(Team team, std::int64_t columns, const float* logits) {
  const float largest = team.maximum(columns, [=](auto at) { return at.load(logits); });
  const float sum = team.sum(columns, [=](auto at) { return exponential(at.load(logits) - largest); });
  return largest + team.logarithm(sum);
}

/// gradient = scale * softmax(logits), without the target's -scale.
template <class Team, class S>
PENSTOCK_BODY void scaled_softmax_row(Team team, std::int64_t columns, S* gradient, const float* logits,
                                      float log_sum_exp, float scale) {
  team.each(columns, [=](auto at) { at.store(gradient, exponential(at.load(logits) - log_sum_exp) * scale); });
}

}  // namespace penstock::unified
