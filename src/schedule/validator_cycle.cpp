// SPDX-License-Identifier: Apache-2.0
//
// V5: what waits for itself, shown as one shortest cycle.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/semantics.hpp"
#include "schedule/validator_rules.hpp"

namespace penstock::rules {

namespace {

using Count = std::vector<std::int32_t>;

std::size_t at(std::int32_t node) {
  return static_cast<std::size_t>(node);
}

/// The nodes that have both something before and something after them among themselves: all cycles lie in these.
std::vector<bool> core_of(const DependenceGraph& graph) {
  std::vector<Count> before(at(graph.size()));
  Count in(at(graph.size()), 0);
  Count out(at(graph.size()), 0);
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    for (const Successor& successor : graph.successors(node)) {
      before[at(successor.node)].push_back(node);
      ++in[at(successor.node)];
      ++out[at(node)];
    }
  }
  std::vector<bool> core(at(graph.size()), true);
  std::vector<std::int32_t> removable;
  const auto remove = [&](std::int32_t node) {
    core[at(node)] = false;
    removable.push_back(node);
  };
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (in[at(node)] == 0 || out[at(node)] == 0) remove(node);
  }
  while (!removable.empty()) {
    const std::int32_t node = removable.back();
    removable.pop_back();
    for (const Successor& successor : graph.successors(node)) {
      if (--in[at(successor.node)] == 0 && core[at(successor.node)]) remove(successor.node);
    }
    for (const std::int32_t previous : before[at(node)]) {
      if (--out[at(previous)] == 0 && core[at(previous)]) remove(previous);
    }
  }
  return core;
}

/// Looks for a shortest cycle by a breadth-first search from each node of the core, no deeper than the best so far.
class ShortestCycle {
 public:
  explicit ShortestCycle(const DependenceGraph& graph)
      : graph_{graph}, core_{core_of(graph)}, seen_by_(core_.size(), -1), parent_(core_.size(), -1) {}

  /// Nodes and the edges from each to the next, the last one's to the first; empty without a cycle.
  std::vector<Successor> find() {
    for (std::int32_t node = 0; node < graph_.size() && work_ < work_limit; ++node) {
      if (core_[at(node)]) search_from(node);
    }
    return best_;
  }
  /// Whether the search ended before all nodes had been tried, so that a shorter cycle may exist.
  bool was_cut_short() const { return work_ >= work_limit; }

 private:
  static constexpr std::int64_t work_limit = 50'000'000;  // edges looked at: about a second

  void search_from(std::int32_t start) {
    std::vector<std::int32_t> level{start};
    seen_by_[at(start)] = start;
    for (std::size_t length = 1; !level.empty() && (best_.empty() || length < best_.size()); ++length) {
      std::vector<std::int32_t> next_level;
      for (const std::int32_t node : level) {
        for (const Successor& successor : graph_.successors(node)) {
          ++work_;
          if (successor.node == start) return keep(start, node);
          if (!core_[at(successor.node)] || seen_by_[at(successor.node)] == start) continue;
          seen_by_[at(successor.node)] = start;
          parent_[at(successor.node)] = node;
          next_level.push_back(successor.node);
        }
      }
      level = std::move(next_level);
    }
  }

  void keep(std::int32_t start, std::int32_t last) {
    std::vector<std::int32_t> nodes{last};
    while (nodes.back() != start) nodes.push_back(parent_[at(nodes.back())]);
    std::reverse(nodes.begin(), nodes.end());
    best_.clear();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      best_.push_back({nodes[i], edge_between(nodes[i], nodes[(i + 1) % nodes.size()])});
    }
  }

  /// The kind of edge that says most: a need, then memory, then the lane. A gate's have one kind.
  EdgeKind edge_between(std::int32_t from, std::int32_t to) const {
    EdgeKind kind = EdgeKind::lane;
    for (const Successor& successor : graph_.successors(from)) {
      if (successor.node != to) continue;
      if (successor.kind == EdgeKind::need) return EdgeKind::need;
      kind = std::max(kind, successor.kind);
    }
    return kind;
  }

  const DependenceGraph& graph_;
  std::vector<bool> core_;
  Count seen_by_;
  Count parent_;
  std::int64_t work_ = 0;
  std::vector<Successor> best_;
};

/// Writes the cycle as a list of waits.
class CycleText {
 public:
  CycleText(const DependenceGraph& graph, const Schedule& schedule, const Findings& findings)
      : graph_{graph}, schedule_{schedule}, findings_{findings} {}

  std::string of(const std::vector<Successor>& cycle) const {
    std::string text;
    // Backwards, so that each line starts with what the line before waits for.
    for (std::size_t i = cycle.size(); i-- > 0;) {
      const std::int32_t later = cycle[(i + 1) % cycle.size()].node;
      text += fmt::format("\n  {} {} {}", name(later), verb(cycle[i].kind, later), name(cycle[i].node));
    }
    return text;
  }

 private:
  std::string name(std::int32_t node) const {
    if (graph_.is_gate(node)) return gate_name(node);
    const ActionOnRank action = graph_.action_of(node);
    std::string text = fmt::format("rank {}'s `{}` ({})", action.rank, findings_.text(action.action),
                                   findings_.place(action.rank, graph_.position_of(node)));
    if (is_collective(action.action.op)) return text + " with those of all ranks";
    const auto receive = lane_of(action.action.op) == Lane::send ? match_of(schedule_, action) : std::nullopt;
    if (!receive) return text;
    return fmt::format("{} with rank {}'s `{}`", text, receive->rank, findings_.text(receive->action));
  }

  std::string gate_name(std::int32_t gate) const {
    std::string text = "the exchange of attention between";
    std::string_view before = " ";
    for (const Successor& member : graph_.successors(gate)) {
      text += std::string{std::exchange(before, ", ")} + name(member.node);
    }
    return text;
  }

  std::string verb(EdgeKind kind, std::int32_t later) const {
    switch (kind) {
      case EdgeKind::lane: {
        if (graph_.is_gate(later)) return "has one that stands on its compute lane behind";
        const Lane lane = lane_of(graph_.action_of(later).action.op);
        const bool is_message = lane == Lane::send || lane == Lane::receive;
        return fmt::format("stands on its {} behind", is_message ? "channel" : fmt::format("{} lane", name_of(lane)));
      }
      case EdgeKind::need:
        return graph_.is_gate(later) ? "has one that needs" : "needs";
      case EdgeKind::memory:
        return graph_.is_gate(later) ? "has one that takes memory that is freed by" : "takes memory that is freed by";
      case EdgeKind::together:
        return "takes part in";
    }
    return "waits for";
  }

  const DependenceGraph& graph_;
  const Schedule& schedule_;
  const Findings& findings_;
};

/// In a cycle of needs and lanes within one list something needs what stands behind it. V4 or V7 reports that; the
/// cycle only follows from it.
bool is_in_one_list(const DependenceGraph& graph, const std::vector<Successor>& cycle) {
  return std::all_of(cycle.begin(), cycle.end(), [&](const Successor& edge) {
    if (graph.is_gate(edge.node) || edge.kind == EdgeKind::memory) return false;
    const ActionOnRank& node = graph.action_of(edge.node);
    // A message and a collective action are of other lists too.
    const bool is_shared = is_collective(node.action.op) || lane_of(node.action.op) == Lane::send;
    return !is_shared && node.rank == graph.action_of(cycle.front().node).rank;
  });
}

}  // namespace

void check_cycles(const ScheduleIndex& index, const std::vector<MemoryEdge>& memory_edges, Findings& findings) {
  const DependenceGraph graph{index, memory_edges};
  ShortestCycle search{graph};
  const auto cycle = search.find();
  if (cycle.empty() || is_in_one_list(graph, cycle)) return;
  // Between two gates of a cycle there is an action.
  const std::int32_t shown = graph.is_gate(cycle.front().node) ? cycle[1].node : cycle.front().node;
  const ActionOnRank first = graph.action_of(shown);
  findings.add(Rule::cycle, Placed{first.rank, graph.position_of(shown), first.action},
               "waits for itself, so the schedule would never end; {} cycle of {} waits is:{}",
               search.was_cut_short() ? "a" : "a shortest", cycle.size(),
               CycleText{graph, index.schedule(), findings}.of(cycle));
}

}  // namespace penstock::rules
