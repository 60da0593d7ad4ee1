// SPDX-License-Identifier: Apache-2.0
//
// The weight gradients of a run that places them: schedule.weight_gradients: placed.
#pragma once

#include <functional>

#include "execute/run_plan.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// The schedule of `compute`, complete, with each W where RunShape::durations and the memory of the device want it, or
/// with weight_queue: dynamic at the latest place.
///
/// `plan` holds the stages, their bytes and the persistent buffers of the whole run; `complete` makes all that runs of
/// compute actions. @throws Error bad_input for compute actions that have places for their Ws
Schedule with_placed_weight_gradients(const RunPlan& plan, Schedule compute,
                                      const std::function<Schedule(const Schedule&)>& complete);

}  // namespace penstock
