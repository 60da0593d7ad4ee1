// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "execute/run_plan.hpp"

namespace penstock {

/// Host bytes by kind, of one rank or of the ranks of a node together. Libraries, the program and the pages of files
/// come on top.
struct PlannedHostBytes {
  Bytes states{0};    ///< masters and moments
  Bytes previous{0};  ///< the same before the last step (memory.rollback: copy)
  Bytes working_copies{0};
  Bytes gradients{0};
  Bytes staging{0};      ///< gradients of other replicas, and of a tied head, on their way into a sum
  Bytes activations{0};  ///< the most that are offloaded at once
  Bytes snapshot{0};     ///< masters and moments once more, while a checkpoint is written: with
                         ///< output.checkpoint_every: 0 that of a run which is stopped early
  Bytes devices{0};      ///< memory of devices that is host memory

  /// What the optimizer keeps and the checkpoint takes: all but the devices.
  Bytes of_training() const {
    return states + previous + working_copies + gradients + staging + activations + snapshot;
  }
  Bytes total() const { return of_training() + devices; }
  PlannedHostBytes& operator+=(const PlannedHostBytes& other);
};
PlannedHostBytes planned_host_bytes(const RunPlan& plan, std::int32_t world_rank);

/// What takes the bytes, a line for each kind that there is.
std::string host_memory_table(const PlannedHostBytes& bytes);

/// The memory of this node for its ranks: memory.host, or less where the machine has less.
Bytes node_capacity(const Deck& deck);

/// @throws Error does_not_fit if `ranks` ranks of a node need more than `capacity`, with the table and then the advice
void check_node(const PlannedHostBytes& of_node, std::int32_t ranks, Bytes capacity, const Advice& advice);

/// The ranks of the largest node, if each has parallel.ranks_per_node, or all ranks are on one.
struct NodePlan {
  std::int32_t ranks = 1;
  PlannedHostBytes bytes;
};
NodePlan largest_node(const RunPlan& plan, const Deck& deck);

/// Before anything is allocated: every rank checks the node on which it runs, one of parallel.ranks_per_node too.
/// Collective. @throws AgreedError
void check_own_node(const RunPlan& plan, const Deck& deck, const std::string& deck_path, const Communicator& world);

}  // namespace penstock
