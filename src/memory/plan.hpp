// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "schedule/buffers.hpp"
#include "schedule/graph.hpp"
#include "schedule/schedule.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

/// Every offset and size is a multiple of this (a cache line pair; cuBLASLt's widest alignment).
inline constexpr std::int64_t buffer_alignment = 256;

/// Where a buffer lies in the rank's device memory.
struct PlannedBuffer {
  SymbolicBuffer buffer;
  Bytes offset;
  Bytes bytes;
};

/// One action of the list with its memory.
struct PlannedAction {
  Action action;
  std::vector<PlannedBuffer> takes;     ///< taken when the action's place in the list comes
  std::vector<SymbolicBuffer> frees;    ///< free for later actions of the list, once this one is complete
  std::vector<std::int32_t> waits_for;  ///< list positions of actions that freed memory which this one takes,
                                        ///< ascending; those that the order of a lane implies are left out
  Bytes host_offset;                    ///< OFFLOAD_A, RELOAD_A: where the host keeps what is moved
};

/// Buffers of one kind and size: a row of the table of what takes the bytes.
struct MemoryUse {
  BufferKind kind = BufferKind::workspace;
  std::int64_t count = 0;
  Bytes each;
  Bytes total() const { return each * count; }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// The walk of one rank's list: the persistent buffers, then the offsets of all others, in list order.
struct RankPlan {
  Rank rank;
  std::vector<PlannedBuffer> persistent;
  std::vector<PlannedAction> actions;
  Bytes persistent_bytes;
  Bytes peak;                           ///< highest end of any buffer at any time
  std::map<BufferKind, Bytes> at_peak;  ///< bytes by kind when the peak is first reached, persistent ones included
  std::vector<MemoryUse> table;         ///< the same by kind and size, largest total first: the table of exit code 3
  Bytes unused_at_peak;                 ///< below the peak, and in no buffer
  Bytes awaiting_stages;                ///< of it, in the place for parameters and gradients that come and go
  Bytes host_peak;                      ///< highest end of what OFFLOAD_A has taken to the host
};

/// The persistent buffers that `rank` needs over several schedules (training, validation, generation), so that they lie
/// at the same offsets in each: give the result to the plans of all. Workspace and tokens are the largest asked for.
struct PersistentLayout {
  std::vector<PlannedBuffer> buffers;
  Bytes bytes;
};

/// Parameters and gradients (no gradients if all schedules are forward-only), tokens, workspace; `schedules` share the
/// stages.
PersistentLayout lay_out_persistent(const std::vector<const Schedule*>& schedules, Rank rank,
                                    const std::vector<PerStage<StageBytes>>& stage_bytes);

/// Walks `schedule`'s list for `rank`: first-fit at the lowest offset above the persistent buffers, deterministic.
/// `stage_bytes` has an entry per stage. @throws Error internal if the list frees what it did not take.
RankPlan plan_rank(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
                   const PersistentLayout& persistent);

/// The plan's waits as edges of the dependence graph, for `validate` and `simulate`.
std::vector<MemoryEdge> memory_edges(const RankPlan& plan);

/// What takes the bytes at the peak, one line per kind and size, largest first: for check, the log and errors.
std::string memory_table(const RankPlan& plan);

/// Lines on what could be changed, asked for where a plan does not fit.
using Advice = std::function<std::string()>;

/// @throws Error does_not_fit if the peak of a rank exceeds `capacity`, with the table and then the advice. `name` is
/// where the capacity stands.
void check_capacity(const RankPlan& plan, Bytes capacity, std::string_view name = "memory.device",
                    const Advice& advice = {});

/// The most bytes that are live at one place of the rank's list, the persistent ones included: at most the peak of
/// plan_rank, which may leave holes. For planners, who need no addresses.
Bytes most_live_bytes(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
                      const PersistentLayout& persistent);

/// The most buffers of `kind` that are live at one place of the rank's list.
std::int32_t most_live(const Schedule& schedule, Rank rank, BufferKind kind);

}  // namespace penstock
