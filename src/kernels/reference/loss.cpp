// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/reference/reference_kernels.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::reference {
namespace {

// The target of row t, or -1 when it has none here. @throws Error internal beyond the vocabulary.
std::int64_t target_at(const ConstMatrix& targets, std::int64_t t, std::int64_t vocabulary) {
  const std::int64_t target = targets.as<std::int32_t>()[t];
  require(target < vocabulary, "cross_entropy: target {} of row {} is not in the vocabulary of {}", target, t,
          vocabulary);
  return std::max<std::int64_t>(target, -1);
}

double log_sum_exp_of(const double* row, std::int64_t columns) {
  const double largest = *std::max_element(row, row + columns);
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(row[c] - largest);
  return largest + std::log(sum);
}

}  // namespace

void ReferenceKernels::cross_entropy(Matrix losses, Matrix log_sum_exp, ConstMatrix logits, ConstMatrix targets) {
  expect_shape("cross_entropy", "losses", losses, 1, logits.rows);
  expect_shape("cross_entropy", "log_sum_exp", log_sum_exp, 1, logits.rows);
  expect_shape("cross_entropy", "targets", targets, 1, logits.rows);
  const Values scores = load(logits);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::int64_t target = target_at(targets, t, logits.columns);
    const double normalizer = log_sum_exp_of(scores.row(t), logits.columns);
    set_element(log_sum_exp, 0, t, normalizer);
    set_element(losses, 0, t, target < 0 ? 0.0 : normalizer - scores(t, target));
  }
}

void ReferenceKernels::cross_entropy_gradient(Matrix logits_gradient, ConstMatrix logits, ConstMatrix log_sum_exp,
                                              ConstMatrix targets, double scale) {
  expect_shape("cross_entropy_gradient", "logits_gradient", logits_gradient, logits.rows, logits.columns);
  expect_shape("cross_entropy_gradient", "log_sum_exp", log_sum_exp, 1, logits.rows);
  expect_shape("cross_entropy_gradient", "targets", targets, 1, logits.rows);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::int64_t target = target_at(targets, t, logits.columns);
    const bool counts = targets.as<std::int32_t>()[t] >= 0 || targets.as<std::int32_t>()[t] == target_elsewhere;
    const double normalizer = element(log_sum_exp, 0, t);
    for (std::int64_t c = 0; c < logits.columns; ++c) {
      const double probability = std::exp(element(logits, t, c) - normalizer);
      set_element(logits_gradient, t, c, counts ? scale * (probability - (c == target ? 1.0 : 0.0)) : 0.0);
    }
  }
}

}  // namespace penstock::reference
