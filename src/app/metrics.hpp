// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "base/units.hpp"

namespace penstock {

/// One row of metrics.csv. Steps count from 1: row `step` is what the step-th update saw.
struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t tokens = 0;   ///< trained on so far, this step included
  double loss = 0;           ///< mean over the target tokens of the global batch [nats]
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double bubble_fraction = 0;             ///< 1 - busy seconds of the compute lanes / (ranks x step seconds)
  std::int64_t peak_device_bytes = 0;     ///< highest over ranks
  std::optional<double> validation_loss;  ///< empty where the step was not validated [nats]
  bool skipped = false;                   ///< the update was skipped (training.non_finite: skip)
  /// What the models say of a step of a priced run, which has no loss, gradient norm or learning rate: their columns
  /// stay empty.
  std::optional<double> simulated_seconds;
};

/// Writes metrics.csv, a row a step, flushed at once. Floating-point values are printed so that they read back bitwise.
class MetricsFile {
 public:
  /// Starts at `path`; rows after `completed_steps` of an earlier run (0: all of them) are dropped, so that a resumed
  /// run's file is that of one run. @throws Error cannot_write.
  MetricsFile(const std::string& path, std::int64_t completed_steps);
  /// @throws Error cannot_write, also if the file is no longer where it was: its rows would be lost with it.
  void write(const StepMetrics& row);

  static constexpr const char* header =
      "step,tokens,loss,grad_norm,learning_rate,step_seconds,tokens_per_second,bubble_fraction,peak_device_bytes,"
      "validation_loss,skipped";

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace penstock
