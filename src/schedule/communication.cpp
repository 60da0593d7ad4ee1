// SPDX-License-Identifier: Apache-2.0
//
// The pass that adds messages between ranks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/graph.hpp"
#include "schedule/passes.hpp"
#include "schedule/schedule_index.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

/// Messages by the compute action that they stand beside, in each rank's list.
class MessagePlacement {
 public:
  explicit MessagePlacement(const Schedule& schedule) : schedule_{schedule}, index_{schedule} {
    for (const auto& list : schedule.actions) {
      places_.push_back(std::vector<Place>(list.size() + 1));
      std::vector<std::size_t> ends;
      for (std::size_t position = 0; position < list.size(); ++position) {
        if (list[position].op == Op::forward || gives_input_gradient(list[position].op)) ends.push_back(position);
      }
      step_ends_.push_back(std::move(ends));
    }
    for (const Rank rank : all<Rank>(schedule.actions.size())) place_messages_from(rank);
  }

  Schedule result() const {
    Schedule result = schedule_;
    for (const Rank rank : all<Rank>(schedule_.actions.size())) {
      auto& list = result.actions[rank];
      list.clear();
      const auto& compute = schedule_.actions[rank];
      for (std::size_t position = 0; position <= compute.size(); ++position) {
        const Place& place = places_[rank][position];
        list.insert(list.end(), place.receives_before.begin(), place.receives_before.end());
        if (position < compute.size()) list.push_back(compute[position]);
        list.insert(list.end(), place.sends_after.begin(), place.sends_after.end());
      }
    }
    return result;
  }

 private:
  struct Place {
    std::vector<Action> receives_before;
    std::vector<Action> sends_after;
  };
  struct Receive {
    ActionOnRank node;
    std::size_t position;  // of the consumer in its list
  };

  void place_messages_from(Rank rank) {
    std::map<Channel, std::vector<Receive>> receives;
    for (std::size_t position = 0; position < schedule_.actions[rank].size(); ++position) {
      std::vector<Action> sends;
      append_sends_after(schedule_.actions[rank][position], sends);
      for (const Action& send : sends) places_[rank][leaves_at(rank, position, send)].sends_after.push_back(send);
    }
    for (const Place& place : places_[rank]) {
      for (const Action& send : place.sends_after) {
        const ActionOnRank receive = *match_of(schedule_, {rank, send});
        receives[*channel_of(schedule_, receive)].push_back({receive, consumer_of(receive)});
      }
    }
    for (auto& [channel, list] : receives) place_receives(list);
  }

  /// The messages that bring the action's results to other ranks.
  void append_sends_after(const Action& action, std::vector<Action>& out) const {
    if (action.op == Op::forward && schedule_.backward) append_checkpoint_sends(action, out);
    if (action.op != Op::forward && !gives_input_gradient(action.op)) return;
    const Op op = action.op == Op::forward ? Op::send_forward : Op::send_backward;
    const Action send{op, action.stage, action.micro_batch, action.slice};
    const auto peer = peer_of(schedule_, send);
    if (peer && *peer != holder_of(schedule_, action)) out.push_back(send);
  }

  void append_checkpoint_sends(const Action& forward, std::vector<Action>& out) const {
    const auto& [rank_of, fed_by] = *schedule_.backward;
    const auto fed = std::equal_range(fed_by.begin(), fed_by.end(), forward.stage);
    for (auto stage = fed.first; stage != fed.second; ++stage) {
      const Stage to{static_cast<std::int32_t>(stage - fed_by.begin())};
      if (to.value() == 0 || rank_of[to] == schedule_.rank_of[forward.stage]) continue;
      out.push_back({Op::send_checkpoint, to, forward.micro_batch, forward.slice});
    }
  }

  /// The position that the send stands behind: that of its producer. Late checkpoints are exchanged a time step before
  /// their use (SPipe's synchronous mode): rank r is at step r + i in its i-th forward or backward.
  std::size_t leaves_at(Rank rank, std::size_t producer, const Action& send) const {
    if (!schedule_.late_checkpoints || send.op != Op::send_checkpoint) return producer;
    const ActionOnRank receive = *match_of(schedule_, {rank, send});
    const auto& uses = step_ends_[receive.rank];
    const auto before_use = std::lower_bound(uses.begin(), uses.end(), consumer_of(receive)) - uses.begin();
    const auto step = before_use + receive.rank.value() - 1 - rank.value();
    const auto& own = step_ends_[rank];
    if (step < 0) return producer;
    return std::max(producer, own[std::min(static_cast<std::size_t>(step), own.size() - 1)]);
  }

  /// What may use what is received first.
  static std::vector<Op> consumers_of(Op receive) {
    if (receive == Op::receive_forward) return {Op::forward};
    if (receive == Op::receive_checkpoint) return {Op::recompute};
    return {Op::backward, Op::backward_input};
  }

  /// The position of what uses the received buffer; the end of the list if the schedule lacks it.
  std::size_t consumer_of(const ActionOnRank& receive) const {
    const Action& action = receive.action;
    const auto find = [&](Op op) {
      return index_.position_of({receive.rank, {op, action.stage, action.micro_batch, action.slice}});
    };
    for (const Op op : consumers_of(action.op)) {
      if (const auto position = find(op)) return static_cast<std::size_t>(*position);
    }
    return schedule_.actions[receive.rank].size();
  }

  /// Puts the receives of one channel, given in the order of the sends, each before its consumer and before the later
  /// ones.
  void place_receives(std::vector<Receive>& receives) {
    std::size_t latest = std::numeric_limits<std::size_t>::max();
    for (auto receive = receives.rbegin(); receive != receives.rend(); ++receive) {
      latest = std::min(latest, receive->position);
      receive->position = latest;
    }
    for (const Receive& receive : receives) {
      places_[receive.node.rank][receive.position].receives_before.push_back(receive.node.action);
    }
  }

  const Schedule& schedule_;
  ScheduleIndex index_;
  PerRank<std::vector<Place>> places_;
  PerRank<std::vector<std::size_t>> step_ends_;  // positions of forwards and backwards
};

/// The nodes of a graph in the order of their starts, messages before what starts when they end.
std::vector<std::int32_t> in_time_order(const DependenceGraph& graph, const std::vector<Seconds>& starts) {
  struct Entry {
    double start;
    bool is_message;
    std::int32_t node;
    auto key() const { return std::tuple{start, !is_message, node}; }
  };
  std::vector<Entry> entries;
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (!graph.is_node(node)) continue;
    const bool is_message = lane_of(graph.action_of(node).action.op) == Lane::send;
    entries.push_back({starts[static_cast<std::size_t>(node)].value, is_message, node});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.key() < b.key(); });
  std::vector<std::int32_t> nodes;
  nodes.reserve(entries.size());
  for (const Entry& entry : entries) nodes.push_back(entry.node);
  return nodes;
}

/// Copies between host and device stand where the list has them, behind a compute action of the rank: as early as their
/// data is there they would take memory long before they need it.
void keep_copies_behind_computes(const DependenceGraph& graph, std::int32_t ranks, std::vector<Seconds>& starts) {
  PerRank<Seconds> latest_compute(ranks, Seconds{0});
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (!graph.is_node(node)) continue;
    const ActionOnRank action = graph.action_of(node);
    Seconds& start = starts[static_cast<std::size_t>(node)];
    Seconds& latest = latest_compute[action.rank];
    const Lane lane = lane_of(action.action.op);
    if (lane == Lane::compute) latest = std::max(latest, start);
    if (lane == Lane::to_device || lane == Lane::to_host) start = std::max(start, latest);
  }
}

}  // namespace

Schedule add_communication(const Schedule& schedule) {
  Schedule beside = MessagePlacement{schedule}.result();
  const ScheduleIndex index{beside};
  const DependenceGraph graph{index};
  auto starts =
      earliest_starts(graph, [&](std::int32_t node) { return unit_duration(schedule, graph.action_of(node).action); });
  if (!starts) return beside;
  keep_copies_behind_computes(graph, schedule.shape.ranks, *starts);
  Schedule result = schedule;
  for (auto& list : result.actions) list.clear();
  for (const std::int32_t node : in_time_order(graph, *starts)) {
    const ActionOnRank action = graph.action_of(node);
    if (is_collective(action.action.op)) {
      for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
        result.actions[rank].push_back(on_rank(schedule, action.action, rank).action);
      }
      continue;
    }
    result.actions[action.rank].push_back(action.action);
    if (lane_of(action.action.op) != Lane::send) continue;
    const auto receive = match_of(beside, action);
    if (receive) result.actions[receive->rank].push_back(receive->action);
  }
  return result;
}

}  // namespace penstock
