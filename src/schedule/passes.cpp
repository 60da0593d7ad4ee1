// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/graph.hpp"
#include "schedule/schedule_index.hpp"
#include "schedule/semantics.hpp"
#include "schedule/streaming.hpp"
#include "schedule/vocabulary.hpp"

namespace penstock {

namespace {

bool is_backward(Op op) {
  return op == Op::backward || op == Op::backward_input;
}

bool holds_any(const Schedule& schedule, std::initializer_list<Op> ops) {
  const auto is_one = [&](const Action& action) { return std::find(ops.begin(), ops.end(), action.op) != ops.end(); };
  return std::any_of(schedule.actions.begin(), schedule.actions.end(),
                     [&](const auto& list) { return std::any_of(list.begin(), list.end(), is_one); });
}

/// The schedule with each action replaced by what `expand(action, out)` appends.
template <class Expand>
Schedule expanded(const Schedule& schedule, const Expand& expand) {
  Schedule result = schedule;
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    result.actions[rank].clear();
    for (const Action& action : schedule.actions[rank]) expand(action, result.actions[rank]);
  }
  return result;
}

// --- communication ---

/// Messages by the compute action that they stand beside, in each rank's list.
class MessagePlacement {
 public:
  explicit MessagePlacement(const Schedule& schedule) : schedule_{schedule}, index_{schedule} {
    for (const auto& list : schedule.actions) {
      places_.push_back(std::vector<Place>(list.size() + 1));
      std::vector<std::size_t> ends;
      for (std::size_t position = 0; position < list.size(); ++position) {
        if (list[position].op == Op::forward || is_backward(list[position].op)) ends.push_back(position);
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
    if (action.op != Op::forward && !is_backward(action.op)) return;
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

// --- host stages ---

bool works_on_gradients(Op op) {
  return is_backward(op) || op == Op::backward_weight || op == Op::send_backward || op == Op::vocabulary_backward ||
         op == Op::embed_backward;
}

/// The position after which a stage has no more work on its rank, or -1 if it has none: that of its last backward, or
/// of that one's message.
PerStage<std::int32_t> last_positions(const Schedule& schedule) {
  PerStage<std::int32_t> last(schedule.stepped_stages(), -1);
  for (const auto& list : schedule.actions) {
    for (std::size_t position = 0; position < list.size(); ++position) {
      const Action& action = list[position];
      if (works_on_gradients(action.op) && last.contains(action.stage))
        last[action.stage] = static_cast<std::int32_t>(position);
    }
  }
  return last;
}

Action host_action(Op op, Stage stage) {
  return {op, stage, MicroBatch{0}, Slice{0}};
}

bool steps_last(const Schedule& schedule, Stage stage) {
  return schedule.tied_embeddings && !schedule.shares_vocabulary && stage.value() > 0 &&
         stage == schedule.last_stage(Pass::backward);
}

/// One rank's list with the host actions of its stages.
class HostList {
 public:
  HostList(const Schedule& schedule, const PerStage<std::int32_t>& last, StepsWait wait)
      : schedule_{schedule}, last_{last}, wait_{wait} {}

  std::vector<Action> of(Rank rank) {
    list_.clear();
    stages_.clear();
    for (const Stage stage : all<Stage>(schedule_.stepped_stages())) {
      if (schedule_.rank_with(Pass::backward, stage) == rank && last_[stage] >= 0) stages_.push_back(stage);
    }
    const auto& actions = schedule_.actions[rank];
    for (std::size_t position = 0; position < actions.size(); ++position) {
      list_.push_back(actions[position]);
      const Action& action = actions[position];
      if (works_on_gradients(action.op) && last_.contains(action.stage) &&
          last_[action.stage] == static_cast<std::int32_t>(position)) {
        reduce(action.stage);
      }
    }
    finish();
    return list_;
  }

 private:
  void reduce(Stage stage) {
    list_.push_back(host_action(Op::offload_gradients, stage));
    list_.push_back(host_action(Op::reduce, stage));
    if (wait_ != StepsWait::for_norm && !steps_last(schedule_, stage)) step(stage);
  }

  void step(Stage stage) {
    list_.push_back(host_action(Op::step, stage));
    const bool is_final = wait_ == StepsWait::for_reduction;
    if (is_final && !schedule_.streams_parameters) list_.push_back(host_action(Op::fetch_forward, stage));
  }

  void finish() {
    const bool waits = wait_ == StepsWait::for_norm;
    if (!waits && !stages_.empty() && steps_last(schedule_, stages_.back())) step(stages_.back());
    list_.push_back(host_action(Op::validate, Stage{0}));
    if (wait_ == StepsWait::for_reduction) return;
    for (const Stage stage : stages_) list_.push_back(host_action(waits ? Op::step : Op::undo, stage));
    if (schedule_.streams_parameters) return;
    for (const Stage stage : stages_) list_.push_back(host_action(Op::fetch_forward, stage));
  }

  const Schedule& schedule_;
  const PerStage<std::int32_t>& last_;
  StepsWait wait_;
  std::vector<Stage> stages_;  // of the rank, ascending
  std::vector<Action> list_;
};

}  // namespace

Schedule add_recompute(const Schedule& schedule, const PerStage<bool>& stages) {
  const std::int32_t backward_stages = schedule.ranks(Pass::backward).size();
  if (stages.size() != backward_stages) {
    fail(ExitCode::bad_input, "recompute is given for {} stages; schedule '{}' has {}", stages.size(), schedule.name,
         backward_stages);
  }
  const std::int32_t slices = schedule.shape.slices;
  Schedule result = expanded(schedule, [&](const Action& action, std::vector<Action>& out) {
    const bool opens_backward = is_backward(action.op) && action.slice.value() == slices - 1;
    if (opens_backward && stages.contains(action.stage) && stages[action.stage]) {
      for (const Slice slice : all<Slice>(slices))
        out.push_back({Op::recompute, action.stage, action.micro_batch, slice});
    }
    out.push_back(action);
  });
  result.recompute = stages;
  return result;
}

Schedule split_weight_gradients(const Schedule& schedule) {
  return expanded(schedule, [](const Action& action, std::vector<Action>& out) {
    if (action.op != Op::backward) return out.push_back(action);
    out.push_back({Op::backward_input, action.stage, action.micro_batch, action.slice});
    out.push_back({Op::backward_weight, action.stage, action.micro_batch, action.slice});
  });
}

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

Schedule add_host_stages(const Schedule& schedule, StepsWait wait) {
  Schedule result = schedule;
  const auto last = last_positions(schedule);
  HostList list{schedule, last, wait};
  for (const Rank rank : all<Rank>(schedule.actions.size())) result.actions[rank] = list.of(rank);
  return result;
}

namespace {

Schedule with_late_checkpoints(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  if (!schedule.backward || shape.micro_batches * shape.slices < shape.ranks) {
    fail(
        ExitCode::bad_input,
        "schedule.checkpoint_messages: synchronous with schedule '{}': expected passes of stages each for itself "
        "(spipe), and at least as many slices of micro-batches ({}) as ranks ({}), so that ranks go through their time "
        "steps together; leave it out, or raise training.global_batch",
        schedule.name, shape.micro_batches * shape.slices, shape.ranks);
  }
  Schedule result = schedule;
  result.late_checkpoints = true;
  return result;
}

}  // namespace

Schedule complete(const Schedule& schedule, const CompletionOptions& options) {
  Schedule result = schedule;
  result.tied_embeddings = options.tied_embeddings;
  if (options.late_checkpoints) result = with_late_checkpoints(result);
  if (!schedule.forward_only) {
    result.needs_norm = options.steps_wait != StepsWait::for_reduction;
    const auto& own = schedule.recompute;
    const bool is_chosen = std::find(own.begin(), own.end(), true) != own.end();
    const auto& recompute = is_chosen ? own : options.recompute;
    if (!recompute.empty() && !holds_any(result, {Op::recompute})) result = add_recompute(result, recompute);
    if (options.split_weight_gradients) result = split_weight_gradients(result);
    if (options.offload_nearest > 0 && !holds_any(result, {Op::offload_activations})) {
      result = add_activation_offload(result, options.offload_nearest);
    }
    const bool streams = options.stream_parameters || schedule.streams_parameters;
    if (streams && !holds_any(result, {Op::fetch_backward, Op::evict_forward, Op::evict_backward})) {
      result = add_parameter_streaming(result, options.resident_stages);
    }
  }
  if (options.share_vocabulary && !result.shares_vocabulary) result = share_vocabulary(result);
  if (!holds_any(result, {Op::send_forward, Op::receive_forward, Op::send_backward, Op::receive_backward,
                          Op::send_checkpoint, Op::receive_checkpoint})) {
    result = add_communication(result);
  }
  const bool has_host = holds_any(result, {Op::offload_gradients, Op::reduce, Op::validate, Op::step, Op::undo});
  if (!schedule.forward_only && !has_host) result = add_host_stages(result, options.steps_wait);
  return result;
}

}  // namespace penstock
