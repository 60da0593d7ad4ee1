// SPDX-License-Identifier: Apache-2.0
#include "optimizer/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "base/units.hpp"

namespace penstock {
namespace {

/// How far `step` is between `begin` (0) and `end` (1).
double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step <= begin) return 0.0;
  if (step >= end) return 1.0;
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

/// peak at 0 and minimum at 1, both exactly.
double between(const LearningRateOptions& options, double weight_of_minimum) {
  return (1.0 - weight_of_minimum) * options.peak + weight_of_minimum * options.minimum;
}

}  // namespace

double learning_rate(const LearningRateOptions& options, std::int64_t step, std::int64_t total_steps) {
  require(step >= 1 && step <= total_steps, "learning rate of step {} of {}", step, total_steps);
  const std::int64_t warmup = options.warmup;
  if (step <= warmup) return options.peak * static_cast<double>(step) / static_cast<double>(warmup);
  switch (options.decay) {
    case Decay::cosine:
      return between(options, (1.0 - std::cos(std::numbers::pi * progress(step, warmup, total_steps))) / 2.0);
    case Decay::linear:
      return between(options, progress(step, warmup, total_steps));
    case Decay::constant:
      return options.peak;
    case Decay::wsd: {
      const std::int64_t length = options.decay_steps ? *options.decay_steps : divide_up(total_steps, 5);
      return between(options, progress(step, std::max(warmup, total_steps - length), total_steps));
    }
  }
  fail(ExitCode::internal, "learning rate: no such decay");
}

}  // namespace penstock
