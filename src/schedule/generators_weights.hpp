// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "schedule/schedule.hpp"

namespace penstock {

/// Places the weight gradients of a schedule whose lists hold F and I, each stage's micro-batches ascending: runs the
/// lists with every action lasting one unit, and wherever a rank would wait, for its next action or for room, puts the
/// W that has waited longest. What is left stands at the end. Private to the module's generators.
///
/// A rank keeps at most `most_kept` units of activations, of one (stage, micro-batch) each, from F to W.
/// @pre without the Ws the lists can run to their end, and keep no more than that
Schedule fill_weights(const Schedule& schedule, std::int32_t most_kept);

}  // namespace penstock
