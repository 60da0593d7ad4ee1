// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "app/metrics.hpp"
#include "base/units.hpp"

namespace penstock {

/// Shows the course of a run on the first rank's standard output: a line a step, at most two a second, the first, the
/// last and validated steps always.
class Progress {
 public:
  Progress(std::int64_t total_steps, bool shown) : total_steps_{total_steps}, shown_{shown} {}
  void show(const StepMetrics& row);

 private:
  std::int64_t total_steps_;
  bool shown_;
  Seconds last_line_{0};
  double seconds_per_step_ = 0;  // smoothed, for the time left
};

}  // namespace penstock
