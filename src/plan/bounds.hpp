// SPDX-License-Identifier: Apache-2.0
//
// What no schedule of a candidate's kind can stay below, from closed forms: so most candidates need no simulation.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "plan/modelled_run.hpp"

namespace penstock {

/// Activation units (of one stage, micro-batch and slice) that the rank holds at least at some time; 0 where the stages
/// keep their input only. The exact peak where the kind has a closed form for it, else those of one whole micro-batch
/// on all stages of the rank: its last slice's backward needs the forwards of them all.
std::int32_t least_activation_units(const ScheduleOptions& schedule, std::int32_t pipeline, std::int32_t micro_batches,
                                    Rank rank);

struct LeastCost {
  Bytes device;  ///< of the fullest rank: what is there all the time, and the least activations
  Seconds step;  ///< of the latest rank: before its first forward the stages above, then its own work, then the
                 ///< backwards below or its optimizer steps
};

/// @throws Error as price()
LeastCost least_cost(const ModelledRun& run);

}  // namespace penstock
