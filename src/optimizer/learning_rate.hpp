// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "optimizer/options.hpp"

namespace penstock {

/// The learning rate of training step `step`, 1 .. total_steps: a pure function, so a resumed run follows the same
/// course.
///
/// * Warm-up: peak x step / warmup, so that step `warmup` is the first at peak. A warm-up as long as the run never
/// decays.
/// * cosine, linear: from peak at step `warmup` to exactly minimum at step total_steps.
/// * constant: peak. wsd: peak up to step total_steps - decay_steps, then a straight line to exactly minimum at
/// total_steps;
///   a decay that would begin inside the warm-up begins at its end.
///
/// An extended run (a checkpoint resumed with more steps) follows the course of the new total from the step where it
/// resumes: the rate may jump there, as it must if the first run had already decayed.
double learning_rate(const LearningRateOptions& options, std::int64_t step, std::int64_t total_steps);

}  // namespace penstock
