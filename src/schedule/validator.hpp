// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "schedule/graph.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

class SourceCells;

/// The rules, by the numbers that findings print (V1, V2, ...).
enum class Rule : std::uint8_t {
  placement = 1,      ///< V1: ids below the shape's limits; each action on the rank of its stage
  coverage = 2,       ///< V2: each compute action exactly once: F; B, or I and W; R where the stage recomputes
  channel_order = 3,  ///< V3: sends and receives of a channel match in number and order
  need = 4,           ///< V4: what an action needs is in the lists, on its own rank before it
  cycle = 5,          ///< V5: nothing waits for itself, whatever the buffering of messages
  buffer = 6,         ///< V6: buffers are live when used, taken and freed once, and none is left
  host = 7,  ///< V7: every stage offloaded, reduced, stepped (net of what is undone), fetched once, in this order; one
             ///< VALIDATE per rank
  accumulation_order = 8,  ///< V8: weight gradients of a stage add micro-batches ascending, slices descending
  parameter_version = 9    ///< V9: no STEP, UNDO or FETCH_F of a stage before its last use of the parameters
};

/// One fault of a schedule.
struct Finding {
  Rule rule = Rule::placement;
  Rank rank;
  std::int32_t position = -1;  ///< in the rank's list, from 0; -1 where the fault is that something is not there
  std::string text;            ///< "V3 rank 1, action 17 `1RECV_F3`: ..." (actions count from 1 for people)
                               ///< or "V8 rank 0, row 1, cell 4 `0B0`: ..." where the list comes from a file
};

/// Every fault of a complete schedule (see `complete`), by rule and then by place; empty if it can run.
///
/// Give the edges of the memory plans too, so that what waits for memory takes part in the search for cycles. A
/// schedule whose own tables disagree about the numbers of ranks and stages has a V1 finding and is not looked at
/// further.
///
/// With `source`, the file that the schedule was completed from, findings name its cells.
std::vector<Finding> validate(const Schedule& schedule, const std::vector<MemoryEdge>& memory_edges = {},
                              const SourceCells* source = nullptr);

/// @throws Error damaged_input with the first findings (20 at most, and how many more) if there are any.
void require_valid(const Schedule& schedule, const std::vector<Finding>& findings);

/// The same of a schedule that was completed from the text `csv` of the file `name`, in whose cells the findings are.
void require_valid_file(const Schedule& schedule, std::string_view csv, const std::string& name,
                        const std::vector<MemoryEdge>& memory_edges = {});

}  // namespace penstock
