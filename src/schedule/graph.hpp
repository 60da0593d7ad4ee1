// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "schedule/schedule_index.hpp"

namespace penstock {

/// `after` takes memory that `before` frees; both are positions in the list of `rank`, from 0.
struct MemoryEdge {
  Rank rank;
  std::int32_t before = 0;
  std::int32_t after = 0;
  friend bool operator==(const MemoryEdge&, const MemoryEdge&) = default;
};

/// Why one node waits for another.
enum class EdgeKind : std::uint8_t {
  lane,     ///< it stands later on the same lane or channel
  need,     ///< semantics
  memory,   ///< it takes memory that the other frees
  together  ///< a gate's: it starts with the others behind the gate
};

struct Successor {
  std::int32_t node = 0;
  EdgeKind kind = EdgeKind::lane;
};

/// What waits for what, over all ranks. Its nodes are the actions of the lists, a send and its receive merged into one,
/// and a collective action of all ranks too: so whatever the buffering of messages is, the lists can run to their end
/// exactly if the graph has no cycle.
///
/// Actions that exchange attention (schedule/lockstep) have a gate in common, a node that stands for no action and
/// takes no time: what each of them waits for leads to the gate, and the gate to all of them. None gets on before all
/// have started.
class DependenceGraph {
 public:
  /// `index` must outlive the graph.
  explicit DependenceGraph(const ScheduleIndex& index, const std::vector<MemoryEdge>& memory_edges = {});

  /// Nodes are numbered from 0, ranks ascending, list positions ascending; the own number of a receive, and of a
  /// collective action beyond rank 0, stays unused. Gates follow.
  std::int32_t size() const { return static_cast<std::int32_t>(first_edge_.size()) - 1; }
  std::int32_t node_of(Rank rank, std::int32_t position) const;
  /// Whether the node stands for an action: all but receives that have their send, collective actions beyond rank 0,
  /// and gates.
  bool is_node(std::int32_t node) const { return !is_gate(node) && representative(node) == node; }
  bool is_gate(std::int32_t node) const { return static_cast<std::size_t>(node) >= representative_.size(); }
  /// The node that an action is merged into: of a receive its send, of a collective action that of rank 0; else itself.
  /// @pre not a gate, for this and what follows
  std::int32_t representative(std::int32_t node) const { return representative_[static_cast<std::size_t>(node)]; }
  /// The action; of a message its send.
  ActionOnRank action_of(std::int32_t node) const;
  Rank rank_of(std::int32_t node) const { return Rank{rank_of_[static_cast<std::size_t>(node)]}; }
  std::int32_t position_of(std::int32_t node) const;
  std::span<const Successor> successors(std::int32_t node) const;

 private:
  struct Edge {
    std::int32_t from;
    Successor to;
  };
  class Builder;

  const ScheduleIndex* index_;
  std::vector<std::int32_t> first_of_rank_;  // [ranks + 1]
  std::vector<std::int32_t> rank_of_;        // [actions]
  std::vector<std::int32_t> representative_;
  std::vector<std::int32_t> first_edge_;  // [nodes + 1]
  std::vector<Successor> successors_;
};

/// The length of an action in units on a stage of one phase: F, R, I and W 1, B 2, messages and host actions 0. What
/// the schedules' closed forms count in.
Seconds unit_duration(Op op);

/// The same for all phases of the action's stage;
/// phases are the smallest common blocks of the two cuttings of the layers, one a stage where the passes share their
/// stages. Parts of a W share its length equally.
Seconds unit_duration(const Schedule& schedule, const Action& action);

/// How long an action takes once it has started. Of a message the send is asked.
using Prices = std::function<Seconds(const ActionOnRank&)>;

/// F, R, I and W one second, B two, all else nothing, on stages of one phase: what the schedules' closed forms count
/// in.
Prices unit_prices();

/// The same times the phases of each stage. The schedule must outlive the prices.
Prices unit_prices(const Schedule& schedule);

/// When each node starts if every one starts as soon as what it waits for has ended; `duration(node)` in seconds, of a
/// message under the number of its send. Empty if the graph has a cycle.
std::optional<std::vector<Seconds>> earliest_starts(const DependenceGraph& graph,
                                                    const std::function<Seconds(std::int32_t)>& duration);

}  // namespace penstock
