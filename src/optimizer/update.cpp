// SPDX-License-Identifier: Apache-2.0
#include "optimizer/update.hpp"

#include "base/error.hpp"
#include "optimizer/learning_rate.hpp"
#include "optimizer/step.hpp"

namespace penstock {
namespace {

[[noreturn]] void stop(std::int64_t training_step, const NormResult& norm) {
  fail(
      ExitCode::not_finite,
      "step {}: the gradient of {} on rank {} is {}; lower training.learning_rate.peak or lengthen its warm-up, or set "
      "training.non_finite: skip to go on without such steps",
      training_step, norm.first_bad_tensor, norm.first_bad_rank,
      norm.fault == GradientFault::infinite ? "infinite" : "not a number");
}

}  // namespace

float clip_factor(double clip, double norm) {
  return clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0F;
}

UpdateRule::UpdateRule(const OptimizerOptions& options, std::int64_t total_steps)
    : options_{options}, total_steps_{total_steps} {}

Update UpdateRule::update(std::int64_t training_step, std::int64_t adam_step, float factor) const {
  Update update;
  update.learning_rate = learning_rate(options_.learning_rate, training_step, total_steps_);
  update.clip_factor = factor;
  update.factors = adamw_factors(options_, update.learning_rate, adam_step, factor);
  return update;
}

Update UpdateRule::speculate(std::int64_t training_step) const {
  return update(training_step, adam_steps_ + 1, 1.0F);
}

Update UpdateRule::decide(std::int64_t training_step, const NormResult& norm) {
  if (norm.finite) return update(training_step, ++adam_steps_, clip_factor(options_.clip, norm.norm));
  Update skipped;
  skipped.skipped = true;
  skipped.learning_rate = learning_rate(options_.learning_rate, training_step, total_steps_);
  return skipped;
}

void UpdateRule::check_finite(std::int64_t training_step, const NormResult& norm) const {
  if (!norm.finite && options_.non_finite == NonFinite::stop) stop(training_step, norm);
}

}  // namespace penstock
