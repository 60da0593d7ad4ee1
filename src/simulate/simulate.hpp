// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/units.hpp"
#include "memory/plan.hpp"
#include "schedule/schedule.hpp"
#include "schedule/schedule_index.hpp"
#include "simulate/times.hpp"
#include "trace/timeline.hpp"

namespace penstock {

/// Runs one step of the schedule, each action as soon as its lane is free and what it needs is complete; a message
/// takes its channel, and the links that it shares with others, from when it can leave, at both ends at once. Spans are
/// by rank, in list order.
///
/// With the memory plans of all ranks, actions also wait for the memory that they take, spans of messages carry their
/// bytes, and the timeline has the memory in use: a buffer counts from the start of what takes it to the end of what
/// frees it.
/// `times` gets what the step comes to, unless it is null.
/// @throws Error damaged_input if the schedule has a cycle (see validate).
Timeline simulate(const Schedule& schedule, const Prices& prices, const std::vector<RankPlan>& plans = {},
                  const LinkUses& links = {}, StepTimes* times = nullptr);

}  // namespace penstock
