// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "schedule/action.hpp"

namespace penstock {

/// Sizes that every action of a schedule stays below.
struct ScheduleShape {
  std::int32_t ranks = 1;          ///< pipeline coordinates
  std::int32_t stages = 1;         ///< over all ranks
  std::int32_t micro_batches = 1;  ///< of one replica and step
  std::int32_t slices = 1;         ///< of one sequence
  friend bool operator==(const ScheduleShape&, const ScheduleShape&) = default;
};

/// For each rank, the list of its actions: the only place that decides order (design, section 1).
///
/// A list is also the total order of the rank's memory: an action takes its buffers at its place in the list.
struct Schedule {
  std::string name;  ///< for people: "1f1b", "interleaved v=2", a file's name
  ScheduleShape shape;
  PerStage<Rank> rank_of;        ///< the rank that runs a stage
  bool tied_embeddings = false;  ///< the last stage's head is the first stage's embedding: one more edge (semantics)
  bool forward_only = false;     ///< evaluation: no backward, nothing kept
  PerStage<bool> recompute;      ///< stages whose forward keeps its input only; R fills the rest again
  PerRank<std::vector<Action>> actions;

  Stage last_stage() const { return Stage{shape.stages - 1}; }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace penstock
