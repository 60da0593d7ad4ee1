// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "optimizer/norm.hpp"
#include "optimizer/options.hpp"
#include "optimizer/vector_loops.hpp"

namespace penstock {

/// What all STEPs of a training step do; the same on all ranks.
struct Update {
  bool skipped = false;  ///< nothing: masters, moments and working copy stay as they are
  double learning_rate = 0;
  float clip_factor = 1.0F;
  AdamWFactors factors;  ///< for `step`; not set when skipped
};

/// clip / norm when clip > 0 and norm > clip, else exactly 1.
float clip_factor(double clip, double norm);

/// Decides updates, and counts those taken: the Adam step of the bias correction, which a checkpoint keeps.
class UpdateRule {
 public:
  explicit UpdateRule(const OptimizerOptions& options, std::int64_t total_steps);

  /// The update of training step `training_step` (from 1) if all gradients are finite and their norm is below the
  /// bound: for STEPs that do not wait for VALIDATE. Not counted.
  Update speculate(std::int64_t training_step) const;
  /// The update of the training step, at its VALIDATE. One that is not finite is skipped and not counted.
  Update decide(std::int64_t training_step, const NormResult& norm);
  /// At the end of the training step.
  /// @throws Error not_finite with non_finite stop, naming the step, the first tensor, its rank, and NaN or infinity.
  void check_finite(std::int64_t training_step, const NormResult& norm) const;

  /// Updates taken so far.
  std::int64_t adam_steps() const { return adam_steps_; }
  /// Continues after `adam_steps` updates: on resume.
  void restore(std::int64_t adam_steps) { adam_steps_ = adam_steps; }

 private:
  Update update(std::int64_t training_step, std::int64_t adam_step, float factor) const;

  OptimizerOptions options_;
  std::int64_t total_steps_;
  std::int64_t adam_steps_ = 0;
};

}  // namespace penstock
