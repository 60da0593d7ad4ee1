// SPDX-License-Identifier: Apache-2.0
#include "schedule/graph.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "schedule/lockstep.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

/// Collects the edges while walking the lists.
class DependenceGraph::Builder {
 public:
  Builder(DependenceGraph& graph, const ScheduleIndex& index)
      : graph_{graph},
        index_{index},
        last_of_channel_(static_cast<std::size_t>(index.schedule().shape.ranks) * 2 * message_kind_count) {}

  void number_nodes() {
    graph_.first_of_rank_ = {0};
    for (const auto& list : index_.schedule().actions) {
      graph_.first_of_rank_.push_back(graph_.first_of_rank_.back() + static_cast<std::int32_t>(list.size()));
    }
    graph_.representative_.resize(static_cast<std::size_t>(graph_.first_of_rank_.back()));
    graph_.rank_of_.resize(graph_.representative_.size());
    visit_actions([&](const ActionOnRank& node, std::int32_t number) {
      graph_.rank_of_[static_cast<std::size_t>(number)] = node.rank.value();
      graph_.representative_[static_cast<std::size_t>(number)] = merged(node, number);
    });
  }

  /// Before any edge is added.
  void add_gates() {
    gate_of_.assign(graph_.representative_.size(), -1);
    for (const auto& group : groups_of(index_.schedule())) add_gate(group);
  }

  void add_edges() {
    edges_.reserve(graph_.representative_.size() * 3);  // the lane and up to two needs, mostly
    Rank current{-1};
    visit_actions([&](const ActionOnRank& node, std::int32_t number) {
      if (node.rank != current) last_of_lane_.fill(-1);
      current = node.rank;
      add_lane_edge(node, number);
      needs_.clear();
      append_needs(index_, node, needs_);
      for (const ActionOnRank& need : needs_) {
        add(graph_.node_of(need.rank, *index_.position_of(need)), number, EdgeKind::need);
      }
    });
  }

  void add(std::int32_t from, std::int32_t to, EdgeKind kind) {
    const std::int32_t gate = gate_of_[static_cast<std::size_t>(to)];
    edges_.push_back({graph_.representative(from), {gate < 0 ? graph_.representative(to) : gate, kind}});
  }

  /// Sorts the edges by their origin, keeping their order otherwise.
  void store() {
    auto& first = graph_.first_edge_;
    first.assign(graph_.representative_.size() + static_cast<std::size_t>(gates_) + 1, 0);
    for (const Edge& edge : edges_) ++first[static_cast<std::size_t>(edge.from) + 1];
    for (std::size_t node = 1; node < first.size(); ++node) first[node] += first[node - 1];
    graph_.successors_.resize(edges_.size());
    std::vector<std::int32_t> next{first.begin(), first.end() - 1};
    for (const Edge& edge : edges_) {
      graph_.successors_[static_cast<std::size_t>(next[static_cast<std::size_t>(edge.from)]++)] = edge.to;
    }
  }

 private:
  struct Last {
    Rank rank{-1};
    std::int32_t node = -1;
  };

  template <class Visit>
  void visit_actions(const Visit& visit) {
    std::int32_t number = 0;
    for (const Rank rank : all<Rank>(index_.schedule().actions.size())) {
      for (const Action& action : index_.schedule().actions[rank]) visit({rank, action}, number++);
    }
  }

  /// Of a receive the number of its send, of a collective action that of rank 0, where both are listed once at the
  /// place that the index knows.
  std::int32_t merged(const ActionOnRank& node, std::int32_t number) const {
    const auto other = merged_into(node);
    if (!other || !is_first_listing(node, number)) return number;
    const auto position = index_.position_of(*other);
    return position ? graph_.node_of(other->rank, *position) : number;
  }

  std::optional<ActionOnRank> merged_into(const ActionOnRank& node) const {
    const Schedule& schedule = index_.schedule();
    if (is_collective(node.action.op) && schedule.shares_vocabulary) return on_rank(schedule, node.action, Rank{0});
    if (lane_of(node.action.op) != Lane::receive) return std::nullopt;
    return match_of(schedule, node);
  }

  bool is_first_listing(const ActionOnRank& node, std::int32_t number) const {
    const auto position = index_.position_of(node);
    return position && graph_.node_of(node.rank, *position) == number;
  }

  void add_lane_edge(const ActionOnRank& node, std::int32_t number) {
    const Lane lane = lane_of(node.action.op);
    const auto channel = channel_of(index_.schedule(), node);
    if (!channel) {
      auto& last = last_of_lane_[static_cast<std::size_t>(lane)];
      if (last >= 0) add(last, number, EdgeKind::lane);
      last = number;
      return;
    }
    Last& last = last_of(node.rank, *channel);
    if (last.rank == node.rank) add(last.node, number, EdgeKind::lane);
    last = {node.rank, number};
  }

  void add_gate(const std::vector<SlotMember>& group) {
    const auto gate = static_cast<std::int32_t>(graph_.representative_.size()) + gates_++;
    for (const SlotMember& member : group) {
      const std::int32_t node = graph_.node_of(member.rank, member.position);
      gate_of_[static_cast<std::size_t>(node)] = gate;
      edges_.push_back({gate, {node, EdgeKind::together}});
    }
  }

  /// What the rank listed last on a channel: by the other rank, the direction and the kind.
  Last& last_of(Rank rank, const Channel& channel) {
    const bool sends = channel.from == rank;
    const auto peer = static_cast<std::size_t>(sends ? channel.to.value() : channel.from.value());
    return last_of_channel_[(peer * 2 + (sends ? 0U : 1U)) * message_kind_count +
                            static_cast<std::size_t>(channel.kind)];
  }

  DependenceGraph& graph_;
  const ScheduleIndex& index_;
  std::vector<Edge> edges_;
  std::vector<ActionOnRank> needs_;
  std::array<std::int32_t, lane_count> last_of_lane_{};
  std::vector<Last> last_of_channel_;  // of the rank that is being walked, or older
  std::vector<std::int32_t> gate_of_;  // by node; -1: none
  std::int32_t gates_ = 0;
};

DependenceGraph::DependenceGraph(const ScheduleIndex& index, const std::vector<MemoryEdge>& memory_edges)
    : index_{&index} {
  Builder builder{*this, index};
  builder.number_nodes();
  builder.add_gates();
  builder.add_edges();
  for (const MemoryEdge& edge : memory_edges) {
    builder.add(node_of(edge.rank, edge.before), node_of(edge.rank, edge.after), EdgeKind::memory);
  }
  builder.store();
}

std::int32_t DependenceGraph::node_of(Rank rank, std::int32_t position) const {
  return first_of_rank_[static_cast<std::size_t>(rank.value())] + position;
}

std::int32_t DependenceGraph::position_of(std::int32_t node) const {
  return node - first_of_rank_[static_cast<std::size_t>(rank_of(node).value())];
}

ActionOnRank DependenceGraph::action_of(std::int32_t node) const {
  const Rank rank = rank_of(node);
  return {rank, index_->schedule().actions[rank][static_cast<std::size_t>(position_of(node))]};
}

std::span<const Successor> DependenceGraph::successors(std::int32_t node) const {
  const auto begin = static_cast<std::size_t>(first_edge_[static_cast<std::size_t>(node)]);
  const auto end = static_cast<std::size_t>(first_edge_[static_cast<std::size_t>(node) + 1]);
  return std::span{successors_}.subspan(begin, end - begin);
}

Seconds unit_duration(Op op) {
  if (op > Op::recompute) return Seconds{0};
  return Seconds{op == Op::backward ? 2.0 : 1.0};
}

Seconds unit_duration(const Schedule& schedule, const Action& action) {
  const std::int64_t backward_stages = schedule.ranks(Pass::backward).size();
  const std::int64_t phases = std::lcm(std::int64_t{schedule.shape.stages}, backward_stages);
  const std::int64_t of_stage = phases / schedule.ranks(pass_of(action.op)).size();
  const std::int32_t parts = action.part == 0 ? 1 : schedule.parts_of_weight(action.stage);
  return Seconds{static_cast<double>(of_stage) * unit_duration(action.op).value / parts};
}

Prices unit_prices() {
  return [](const ActionOnRank& node) { return unit_duration(node.action.op); };
}

Prices unit_prices(const Schedule& schedule) {
  return [&schedule](const ActionOnRank& node) { return unit_duration(schedule, node.action); };
}

std::optional<std::vector<Seconds>> earliest_starts(const DependenceGraph& graph,
                                                    const std::function<Seconds(std::int32_t)>& duration) {
  const auto count = static_cast<std::size_t>(graph.size());
  std::vector<Seconds> starts(count);
  std::vector<std::int32_t> waits(count, 0);
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    for (const Successor& successor : graph.successors(node)) ++waits[static_cast<std::size_t>(successor.node)];
  }
  std::vector<std::int32_t> ready;
  ready.reserve(count);
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (waits[static_cast<std::size_t>(node)] == 0) ready.push_back(node);
  }
  std::size_t done = 0;
  for (; done < ready.size(); ++done) {
    const std::int32_t node = ready[done];
    const Seconds end = starts[static_cast<std::size_t>(node)] + (graph.is_node(node) ? duration(node) : Seconds{0});
    for (const Successor& successor : graph.successors(node)) {
      auto& start = starts[static_cast<std::size_t>(successor.node)];
      start = std::max(start, end);
      if (--waits[static_cast<std::size_t>(successor.node)] == 0) ready.push_back(successor.node);
    }
  }
  if (done < count) return std::nullopt;
  return starts;
}

}  // namespace penstock
