// SPDX-License-Identifier: Apache-2.0
#include "schedule/semantics.hpp"

#include "schedule/scope.hpp"

namespace penstock {

namespace {

Action of_stage(Op op, Stage stage) {
  return {op, stage, MicroBatch{0}, Slice{0}};
}

/// The action that gives the input gradient: I where the schedule splits the backward, else B.
Action input_gradient_of(const ScheduleIndex& index, Action action) {
  action.op = Op::backward_input;
  if (!index.contains(action)) action.op = Op::backward;
  return action;
}

/// The actions that complete the weight gradients: W, whole or in parts, where the schedule splits the backward, else
/// B.
template <class Visit>
void visit_weight_gradient(const ScheduleIndex& index, Action action, const Visit& visit) {
  const std::int32_t parts = index.schedule().parts_of_weight(action.stage);
  action.op = Op::backward_weight;
  if (index.contains(action)) return visit(action);
  action.op = Op::backward;
  if (parts == 1 || index.contains(action)) return visit(action);
  action.op = Op::backward_weight;
  for (std::int32_t part = 1; part <= parts; ++part) {
    action.part = static_cast<std::uint8_t>(part);
    visit(action);
  }
}

bool ties_two_stages(const Schedule& schedule) {
  return schedule.tied_embeddings && !schedule.shares_vocabulary && schedule.ranks(Pass::backward).size() > 1;
}

/// Whether a rank's steps wait for the global norm (the exact mode of clipping): its list has VALIDATE before STEP.
bool waits_for_norm(const ScheduleIndex& index, const ActionOnRank& step) {
  const auto validate = index.position_of({step.rank, of_stage(Op::validate, Stage{0})});
  const auto position = index.position_of(step);
  return validate && position && *validate < *position;
}

template <class Visit>
void visit_forward_needs(const Scope& scope, const Visit& visit) {
  if (!scope.is_first()) {
    const Stage before = scope.stage().previous();
    visit(scope.shares_rank(before) ? scope.at(Op::forward, before) : scope.same(Op::receive_forward));
  } else if (scope.has_input()) {
    visit(scope.of_share(Op::embed_forward));
  }
  if (scope.action.slice.value() > 0) visit(scope.at(Op::forward, scope.action.slice.previous()));
}

/// Where a stage's output gradient comes from; nothing on the last stage, unless the ranks share the vocabulary.
template <class Visit>
void visit_output_gradient(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  if (!scope.has_output()) return;
  if (scope.is_last()) return visit(scope.of_share(Op::vocabulary_backward));
  const Stage after = scope.stage().next();
  visit(scope.shares_rank(after) ? input_gradient_of(index, scope.at(Op::backward, after))
                                 : scope.same(Op::receive_backward));
}

template <class Visit>
void visit_recompute_needs(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  if (scope.schedule.recomputes_late) visit_output_gradient(index, scope, visit);
  if (!scope.is_decoupled()) {
    visit(scope.same(Op::forward));
  } else if (!scope.is_first()) {
    visit(scope.has_source_here() ? scope.at(Op::forward, scope.source()) : scope.same(Op::receive_checkpoint));
  }
  if (scope.action.slice.value() > 0) visit(scope.at(Op::recompute, scope.action.slice.previous()));
}

template <class Visit>
void visit_backward_needs(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  visit(scope.same(recomputes(scope.schedule, scope.stage()) ? Op::recompute : Op::forward));
  const Action offload = scope.same(Op::offload_activations);
  if (scope.schedule.offloads_activations && index.contains(offload)) visit(scope.same(Op::reload_activations));
  visit_output_gradient(index, scope, visit);
  if (scope.action.slice.value() + 1 < scope.schedule.shape.slices) {
    visit(input_gradient_of(index, scope.at(Op::backward, scope.action.slice.next())));
  }
}

/// What a collective action needs: on the rank at the end of the model, the stage there.
template <class Visit>
void visit_collective_needs(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  switch (scope.action.op) {
    case Op::vocabulary_forward:
      return visit(scope.at(Op::forward, scope.schedule.last_stage()));
    case Op::vocabulary_backward:
      return visit(scope.same(Op::vocabulary_forward));
    case Op::embed_backward:
      return visit(input_gradient_of(index, scope.at(Op::backward, Stage{0})));
    default:
      return;
  }
}

template <class Visit>
void visit_every_weight_gradient(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  for (const MicroBatch micro_batch : all<MicroBatch>(scope.schedule.shape.micro_batches)) {
    for (const Slice slice : all<Slice>(scope.schedule.shape.slices)) {
      if (scope.schedule.is_share(scope.stage())) {
        visit({Op::vocabulary_backward, scope.stage(), micro_batch, slice});
        visit({Op::embed_backward, scope.stage(), micro_batch, slice});
        continue;
      }
      visit_weight_gradient(index, {Op::backward_weight, scope.stage(), micro_batch, slice}, visit);
    }
  }
}

template <class Visit>
void visit_step_needs(const ScheduleIndex& index, const ActionOnRank& node, const Scope& scope, const Visit& visit) {
  visit(of_stage(Op::reduce, scope.stage()));
  if (waits_for_norm(index, node)) visit(of_stage(Op::validate, Stage{0}));
  if (ties_two_stages(scope.schedule) && scope.is_last()) visit(of_stage(Op::step, Stage{0}));
}

template <class Visit>
void visit_undo_needs(const Scope& scope, const Visit& visit) {
  visit(of_stage(Op::step, scope.stage()));
  visit(of_stage(Op::validate, Stage{0}));
  if (ties_two_stages(scope.schedule) && scope.is_last()) visit(of_stage(Op::undo, Stage{0}));
}

/// What leaves the stage's parameters as the next step reads them: UNDO where the schedule lists it, else STEP.
Action update_of(const ScheduleIndex& index, Stage stage) {
  const Action undo = of_stage(Op::undo, stage);
  return index.contains(undo) ? undo : of_stage(Op::step, stage);
}

Action action_at(const Schedule& schedule, Rank rank, std::int32_t position) {
  return schedule.actions[rank][static_cast<std::size_t>(position)];
}

/// The compute action that a message of a checkpoint is posted behind, where they do not go out early.
template <class Visit>
void visit_action_before(const ScheduleIndex& index, const ActionOnRank& node, const Visit& visit) {
  if (!index.schedule().late_checkpoints) return;
  for (std::int32_t position = index.position_of(node).value_or(0); position-- > 0;) {
    const Action action = action_at(index.schedule(), node.rank, position);
    if (action.op <= Op::recompute) return visit(action);
  }
}

/// A rank also gives account of what it computed (losses, memory): decoupled passes may leave it without a backward
/// that would be done before a REDUCE.
template <class Visit>
void visit_validate_needs(const Scope& scope, Rank rank, const Visit& visit) {
  const Schedule& schedule = scope.schedule;
  for (const Stage stage : all<Stage>(schedule.stepped_stages())) visit(of_stage(Op::reduce, stage));
  if (!scope.is_decoupled()) return;
  const Slice last{schedule.shape.slices - 1};
  for (const Stage stage : all<Stage>(schedule.shape.stages)) {
    if (schedule.rank_of[stage] != rank) continue;
    for (const MicroBatch micro_batch : all<MicroBatch>(schedule.shape.micro_batches)) {
      visit(Action{Op::forward, stage, micro_batch, last});
    }
  }
}

/// Calls visit(Action) for every need, whether the schedule lists it or not.
template <class Visit>
void visit_needs(const ScheduleIndex& index, const ActionOnRank& node, const Visit& visit) {
  const Scope scope{index.schedule(), node.action};
  if (const auto position = index.list_need(node)) visit(action_at(index.schedule(), node.rank, *position));
  switch (node.action.op) {
    case Op::forward:
      return visit_forward_needs(scope, visit);
    case Op::recompute:
      return visit_recompute_needs(index, scope, visit);
    case Op::backward:
    case Op::backward_input:
      return visit_backward_needs(index, scope, visit);
    case Op::backward_weight:
      return visit(scope.same(Op::backward_input));
    case Op::send_forward:
      return visit(scope.same(Op::forward));
    case Op::send_backward:
      return visit(input_gradient_of(index, node.action));
    case Op::send_checkpoint:
      if (scope.is_decoupled()) visit(scope.at(Op::forward, scope.source()));
      return visit_action_before(index, node, visit);
    case Op::receive_checkpoint:
      return visit_action_before(index, node, visit);
    case Op::offload_activations:
      return visit(scope.same(recomputes(scope.schedule, scope.stage()) ? Op::recompute : Op::forward));
    case Op::reload_activations:
      return visit(scope.same(Op::offload_activations));
    case Op::embed_forward:
    case Op::embed_backward:
    case Op::vocabulary_forward:
    case Op::vocabulary_backward:
      return visit_collective_needs(index, scope, visit);
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::fetch_backward:
    case Op::evict_forward:
    case Op::evict_backward:
      return;
    case Op::offload_gradients:
      return visit_every_weight_gradient(index, scope, visit);
    case Op::reduce:
      visit(of_stage(Op::offload_gradients, scope.stage()));
      if (ties_two_stages(scope.schedule) && scope.is_first()) visit(of_stage(Op::reduce, scope.last));
      return;
    case Op::validate:
      return visit_validate_needs(scope, node.rank, visit);
    case Op::step:
      return visit_step_needs(index, node, scope, visit);
    case Op::undo:
      return visit_undo_needs(scope, visit);
    case Op::fetch_forward:
      if (!scope.schedule.streams_parameters) visit(update_of(index, scope.stage()));
      return;
  }
}

/// Where a need of `node` runs: validate, evictions and fetches on the rank of who asks, any other on the rank of its
/// stage.
ActionOnRank on_its_rank(const Schedule& schedule, const ActionOnRank& node, const Action& need) {
  const auto holder = need.op == Op::validate ? std::nullopt : schedule.rank_with(pass_of(need.op), need.stage);
  return {holder.value_or(node.rank), need};
}

}  // namespace

Rank holder_of(const Schedule& schedule, const Action& action) {
  return *schedule.rank_with(pass_of(action.op), action.stage);
}

ActionOnRank on_rank(const Schedule& schedule, const Action& collective, Rank rank) {
  return {rank, {collective.op, schedule.share_of(rank), collective.micro_batch, collective.slice}};
}

bool runs_early(const Schedule& schedule, const Action& action) {
  return schedule.weights_run_early && action.op == Op::backward_weight;
}

bool reads_parameters(Op op) {
  return (op <= Op::recompute && op != Op::backward_weight) || is_collective(op);
}

bool begins_or_ends_stay(Op op) {
  return op >= Op::fetch_forward && op <= Op::evict_backward;
}

Lane lane_of(Op op) {
  switch (op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
    case Op::evict_forward:
    case Op::evict_backward:
    case Op::embed_forward:
    case Op::embed_backward:
    case Op::vocabulary_forward:
    case Op::vocabulary_backward:
      return Lane::compute;
    case Op::send_forward:
    case Op::send_backward:
    case Op::send_checkpoint:
      return Lane::send;
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::receive_checkpoint:
      return Lane::receive;
    case Op::fetch_forward:
    case Op::fetch_backward:
    case Op::reload_activations:
      return Lane::to_device;
    case Op::offload_gradients:
    case Op::offload_activations:
      return Lane::to_host;
    case Op::reduce:
    case Op::validate:
    case Op::step:
    case Op::undo:
      return Lane::cpu;
  }
  return Lane::compute;
}

bool recomputes(const Schedule& schedule, Stage stage) {
  return schedule.backward || (schedule.recompute.contains(stage) && schedule.recompute[stage]);
}

StepsWait steps_wait_of(const Schedule& schedule) {
  auto wait = StepsWait::for_norm;
  for (const auto& list : schedule.actions) {
    bool is_validated = false;
    for (const Action& action : list) {
      if (action.op == Op::undo) return StepsWait::speculative;
      is_validated = is_validated || action.op == Op::validate;
      if (action.op == Op::step && !is_validated) wait = StepsWait::for_reduction;
    }
  }
  return wait;
}

MessageKind message_kind(Op op) {
  switch (op) {
    case Op::send_forward:
    case Op::receive_forward:
      return MessageKind::activations;
    case Op::send_checkpoint:
    case Op::receive_checkpoint:
      return MessageKind::checkpoints;
    default:
      return MessageKind::gradients;
  }
}

std::optional<ActionOnRank> match_of(const Schedule& schedule, const ActionOnRank& node) {
  const Action& action = node.action;
  const auto matching = [&](Op op, Stage stage) -> std::optional<ActionOnRank> {
    const auto& ranks = schedule.ranks(pass_of(op));
    if (!ranks.contains(stage)) return std::nullopt;
    return ActionOnRank{ranks[stage], {op, stage, action.micro_batch, action.slice}};
  };
  switch (action.op) {
    case Op::send_forward:
      return matching(Op::receive_forward, action.stage.next());
    case Op::receive_forward:
      return matching(Op::send_forward, action.stage.previous());
    case Op::send_backward:
      return matching(Op::receive_backward, action.stage.previous());
    case Op::receive_backward:
      return matching(Op::send_backward, action.stage.next());
    case Op::send_checkpoint:
      return schedule.backward ? matching(Op::receive_checkpoint, action.stage) : std::nullopt;
    case Op::receive_checkpoint: {
      auto send = schedule.backward ? matching(Op::send_checkpoint, action.stage) : std::nullopt;
      if (send) send->rank = schedule.rank_of[schedule.backward->fed_by[action.stage]];
      return send;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Rank> peer_of(const Schedule& schedule, const Action& action) {
  const auto match = match_of(schedule, {Rank{0}, action});
  if (!match) return std::nullopt;
  return match->rank;
}

std::optional<Channel> channel_of(const Schedule& schedule, const ActionOnRank& node) {
  const auto peer = peer_of(schedule, node.action);
  if (!peer) return std::nullopt;
  const auto kind = message_kind(node.action.op);
  return lane_of(node.action.op) == Lane::send ? Channel{node.rank, *peer, kind} : Channel{*peer, node.rank, kind};
}

void append_needs(const ScheduleIndex& index, const ActionOnRank& node, std::vector<ActionOnRank>& out) {
  visit_needs(index, node, [&](const Action& action) {
    const auto need = on_its_rank(index.schedule(), node, action);
    if (index.position_of(need)) out.push_back(need);
  });
}

std::vector<ActionOnRank> needs(const ScheduleIndex& index, const ActionOnRank& node) {
  std::vector<ActionOnRank> out;
  append_needs(index, node, out);
  return out;
}

std::vector<ActionOnRank> missing_needs(const ScheduleIndex& index, const ActionOnRank& node) {
  std::vector<ActionOnRank> out;
  visit_needs(index, node, [&](const Action& action) {
    const auto need = on_its_rank(index.schedule(), node, action);
    if (!index.position_of(need)) out.push_back(need);
  });
  return out;
}

}  // namespace penstock
