// SPDX-License-Identifier: Apache-2.0
#include "app/progress.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/log.hpp"

namespace penstock {
namespace {

std::string time_left(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// What the step brought: of training a loss, of a priced run only time.
std::string result_text(const StepMetrics& row) {
  if (row.simulated_seconds)
    return fmt::format("{:.4f} s, simulated {:.4f} s", row.step_seconds, *row.simulated_seconds);
  return fmt::format("loss {:.4f}  norm {:.3f}  rate {:.2e}", row.loss, row.gradient_norm, row.learning_rate);
}

}  // namespace

void Progress::show(const StepMetrics& row) {
  constexpr double newest = 0.2;
  seconds_per_step_ =
      seconds_per_step_ == 0 ? row.step_seconds : (1 - newest) * seconds_per_step_ + newest * row.step_seconds;
  const bool always = last_line_.value == 0 || row.step == total_steps_ || row.validation_loss || row.skipped;
  if (!shown_ || (!always && now() - last_line_ < Seconds{0.5})) return;
  last_line_ = now();
  auto line = fmt::format("step {:>6}/{}  {}  {:>7.0f} tokens/s  bubble {:>2.0f}%  left {}", row.step, total_steps_,
                          result_text(row), row.tokens_per_second, 100 * row.bubble_fraction,
                          time_left(seconds_per_step_ * static_cast<double>(total_steps_ - row.step)));
  if (row.validation_loss) line += fmt::format("  validation {:.4f}", *row.validation_loss);
  if (row.skipped) line += "  SKIPPED: not finite";
  log::note("{}", line);
}

}  // namespace penstock
