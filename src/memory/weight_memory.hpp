// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "base/units.hpp"
#include "memory/plan.hpp"
#include "schedule/schedule.hpp"
#include "schedule/weight_placement.hpp"

namespace penstock {

/// What decides how many weight gradients may wait.
struct WeightMemory {
  /// Makes of compute actions all that runs; a B that is left becomes I and W.
  std::function<Schedule(const Schedule&)> complete;
  PerStage<StageBytes> bytes;
  PerRank<PersistentLayout> persistent;
  std::optional<Bytes> capacity;  ///< of a device; absent: no bound
};

/// Places the weight gradients of `compute` (see place_weight_gradients) so that as many wait as the capacity leaves
/// room for, holes between buffers included. Where a few attempts do not find what fits, each W stands behind its I,
/// and if that does not fit either, nothing does. WeightOrder::waiting has the room that the latest places fit in, at
/// whose addresses a queue runs.
///
/// @throws Error as place_weight_gradients, and as `complete`
Schedule place_weight_gradients(const Schedule& compute, const WeightMemory& memory, const Prices& durations,
                                WeightOrder order);

}  // namespace penstock
