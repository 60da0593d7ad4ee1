// SPDX-License-Identifier: Apache-2.0
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

/// An action with the questions that its meaning turns on.
struct Scope {
  const Schedule& schedule;
  const Action& action;

  Stage stage() const { return action.stage; }
  bool is_first() const { return stage().value() == 0; }
  bool is_last() const { return stage() == schedule.last_stage(); }
  bool has(Stage other) const { return schedule.rank_of.contains(other); }
  bool shares_rank(Stage other) const {
    return has(other) && has(stage()) && schedule.rank_of[other] == schedule.rank_of[stage()];
  }
  Action same(Op op) const { return {op, stage(), action.micro_batch, action.slice}; }
  Action at(Op op, Stage other) const { return {op, other, action.micro_batch, action.slice}; }
  Action at(Op op, Slice slice) const { return {op, stage(), action.micro_batch, slice}; }
  SymbolicBuffer buffer(BufferKind kind) const { return {kind, stage(), action.micro_batch, action.slice}; }
  SymbolicBuffer buffer(BufferKind kind, Stage other) const { return {kind, other, action.micro_batch, action.slice}; }
  SymbolicBuffer persistent(BufferKind kind) const { return {kind, stage(), MicroBatch{0}, Slice{0}}; }
};

Action of_stage(Op op, Stage stage) {
  return {op, stage, MicroBatch{0}, Slice{0}};
}

/// The action that gives the input gradient: I where the schedule splits the backward, else B.
Action input_gradient_of(const ScheduleIndex& index, Action action) {
  action.op = Op::backward_input;
  if (!index.contains(action)) action.op = Op::backward;
  return action;
}

/// The action that completes the weight gradients: W where the schedule splits the backward, else B.
Action weight_gradient_of(const ScheduleIndex& index, Action action) {
  action.op = Op::backward_weight;
  if (!index.contains(action)) action.op = Op::backward;
  return action;
}

bool ties_two_stages(const Schedule& schedule) {
  return schedule.tied_embeddings && schedule.shape.stages > 1;
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
  }
  if (scope.action.slice.value() > 0) visit(scope.at(Op::forward, scope.action.slice.previous()));
}

template <class Visit>
void visit_recompute_needs(const Scope& scope, const Visit& visit) {
  visit(scope.same(Op::forward));
  if (scope.action.slice.value() > 0) visit(scope.at(Op::recompute, scope.action.slice.previous()));
}

template <class Visit>
void visit_backward_needs(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  visit(scope.same(recomputes(scope.schedule, scope.stage()) ? Op::recompute : Op::forward));
  if (!scope.is_last()) {
    const Stage after = scope.stage().next();
    visit(scope.shares_rank(after) ? input_gradient_of(index, scope.at(Op::backward, after))
                                   : scope.same(Op::receive_backward));
  }
  if (scope.action.slice.value() + 1 < scope.schedule.shape.slices) {
    visit(input_gradient_of(index, scope.at(Op::backward, scope.action.slice.next())));
  }
}

template <class Visit>
void visit_every_weight_gradient(const ScheduleIndex& index, const Scope& scope, const Visit& visit) {
  for (const MicroBatch micro_batch : all<MicroBatch>(scope.schedule.shape.micro_batches)) {
    for (const Slice slice : all<Slice>(scope.schedule.shape.slices)) {
      visit(weight_gradient_of(index, {Op::backward, scope.stage(), micro_batch, slice}));
    }
  }
}

template <class Visit>
void visit_step_needs(const ScheduleIndex& index, const ActionOnRank& node, const Scope& scope, const Visit& visit) {
  visit(of_stage(Op::reduce, scope.stage()));
  if (waits_for_norm(index, node)) visit(of_stage(Op::validate, Stage{0}));
  if (ties_two_stages(scope.schedule) && scope.is_last()) visit(of_stage(Op::step, Stage{0}));
}

/// Calls visit(Action) for every need, whether the schedule lists it or not.
template <class Visit>
void visit_needs(const ScheduleIndex& index, const ActionOnRank& node, const Visit& visit) {
  const Scope scope{index.schedule(), node.action};
  switch (node.action.op) {
    case Op::forward:
      return visit_forward_needs(scope, visit);
    case Op::recompute:
      return visit_recompute_needs(scope, visit);
    case Op::backward:
    case Op::backward_input:
      return visit_backward_needs(index, scope, visit);
    case Op::backward_weight:
      return visit(scope.same(Op::backward_input));
    case Op::send_forward:
      return visit(scope.same(Op::forward));
    case Op::send_backward:
      return visit(input_gradient_of(index, node.action));
    case Op::receive_forward:
    case Op::receive_backward:
      return;
    case Op::offload_gradients:
      return visit_every_weight_gradient(index, scope, visit);
    case Op::reduce:
      visit(of_stage(Op::offload_gradients, scope.stage()));
      if (ties_two_stages(scope.schedule) && scope.is_first()) visit(of_stage(Op::reduce, scope.schedule.last_stage()));
      return;
    case Op::validate:
      for (const Stage stage : all<Stage>(scope.schedule.shape.stages)) visit(of_stage(Op::reduce, stage));
      return;
    case Op::step:
      return visit_step_needs(index, node, scope, visit);
    case Op::fetch_forward:
      return visit(of_stage(Op::step, scope.stage()));
  }
}

/// Where a need of `node` runs: validate on the rank of who asks, any other on the rank of its stage.
ActionOnRank on_its_rank(const Schedule& schedule, const ActionOnRank& node, const Action& need) {
  const bool has_stage = need.op != Op::validate && schedule.rank_of.contains(need.stage);
  return {has_stage ? schedule.rank_of[need.stage] : node.rank, need};
}

void append_forward_takes(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (!scope.schedule.forward_only && !recomputes(scope.schedule, scope.stage())) {
    out.push_back(scope.buffer(BufferKind::activations));
    if (scope.is_last()) out.push_back(scope.buffer(BufferKind::logits));
  }
  if (scope.is_last()) return;
  const Stage after = scope.stage().next();
  out.push_back(scope.shares_rank(after) ? scope.buffer(BufferKind::input, after) : scope.buffer(BufferKind::output));
}

void append_backward_takes(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (scope.action.op == Op::backward_input) out.push_back(scope.buffer(BufferKind::weight_operands));
  if (scope.is_first()) return;
  const Stage before = scope.stage().previous();
  out.push_back(scope.shares_rank(before) ? scope.buffer(BufferKind::output_gradient, before)
                                          : scope.buffer(BufferKind::input_gradient));
}

void append_backward_frees(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (scope.action.op == Op::backward) out.push_back(scope.buffer(BufferKind::activations));
  if (scope.is_last()) out.push_back(scope.buffer(BufferKind::logits));
  if (!scope.is_first()) out.push_back(scope.buffer(BufferKind::input));
  if (!scope.is_last()) out.push_back(scope.buffer(BufferKind::output_gradient));
}

/// What every compute action works with beside what it takes.
void append_compute_uses(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const Op op = scope.action.op;
  out.push_back(scope.persistent(BufferKind::parameters));
  out.push_back(SymbolicBuffer{});
  if (scope.is_first() || scope.is_last()) out.push_back(scope.persistent(BufferKind::tokens));
  if (!scope.is_first() && op != Op::backward_weight) out.push_back(scope.buffer(BufferKind::input));
  if (op == Op::forward || op == Op::recompute) return;
  out.push_back(scope.persistent(BufferKind::gradients));
  out.push_back(scope.buffer(BufferKind::activations));
  if (op == Op::backward_weight) return out.push_back(scope.buffer(BufferKind::weight_operands));
  out.push_back(scope.buffer(scope.is_last() ? BufferKind::logits : BufferKind::output_gradient));
}

}  // namespace

bool is_persistent(BufferKind kind) {
  return kind <= BufferKind::workspace;
}

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::parameters:
      return "parameters";
    case BufferKind::gradients:
      return "gradients";
    case BufferKind::tokens:
      return "tokens";
    case BufferKind::workspace:
      return "workspace";
    case BufferKind::input:
      return "input";
    case BufferKind::output:
      return "output";
    case BufferKind::activations:
      return "activations";
    case BufferKind::logits:
      return "logits";
    case BufferKind::output_gradient:
      return "output_gradient";
    case BufferKind::input_gradient:
      return "input_gradient";
    case BufferKind::weight_operands:
      return "weight_operands";
  }
  return "unknown";
}

Lane lane_of(Op op) {
  switch (op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
      return Lane::compute;
    case Op::send_forward:
    case Op::send_backward:
      return Lane::send;
    case Op::receive_forward:
    case Op::receive_backward:
      return Lane::receive;
    case Op::fetch_forward:
      return Lane::to_device;
    case Op::offload_gradients:
      return Lane::to_host;
    case Op::reduce:
    case Op::validate:
    case Op::step:
      return Lane::cpu;
  }
  return Lane::compute;
}

bool recomputes(const Schedule& schedule, Stage stage) {
  return schedule.recompute.contains(stage) && schedule.recompute[stage];
}

std::optional<ActionOnRank> match_of(const Schedule& schedule, const ActionOnRank& node) {
  const Action& action = node.action;
  const auto matching = [&](Op op, Stage stage) -> std::optional<ActionOnRank> {
    if (!schedule.rank_of.contains(stage)) return std::nullopt;
    return ActionOnRank{schedule.rank_of[stage], {op, stage, action.micro_batch, action.slice}};
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
  const Op op = node.action.op;
  const auto kind =
      op == Op::send_forward || op == Op::receive_forward ? MessageKind::activations : MessageKind::gradients;
  return lane_of(op) == Lane::send ? Channel{node.rank, *peer, kind} : Channel{*peer, node.rank, kind};
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

void append_takes(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out) {
  const Scope scope{schedule, node.action};
  switch (node.action.op) {
    case Op::forward:
      return append_forward_takes(scope, out);
    case Op::backward:
    case Op::backward_input:
      return append_backward_takes(scope, out);
    case Op::recompute:
      out.push_back(scope.buffer(BufferKind::activations));
      if (scope.is_last()) out.push_back(scope.buffer(BufferKind::logits));
      return;
    case Op::receive_forward:
      return out.push_back(scope.buffer(BufferKind::input));
    case Op::receive_backward:
      return out.push_back(scope.buffer(BufferKind::output_gradient));
    case Op::backward_weight:
    case Op::send_forward:
    case Op::send_backward:
    case Op::fetch_forward:
    case Op::offload_gradients:
    case Op::reduce:
    case Op::validate:
    case Op::step:
      return;
  }
}

void append_frees(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out) {
  const Scope scope{schedule, node.action};
  switch (node.action.op) {
    case Op::forward:
      if (schedule.forward_only && !scope.is_first()) out.push_back(scope.buffer(BufferKind::input));
      return;
    case Op::backward:
    case Op::backward_input:
      return append_backward_frees(scope, out);
    case Op::backward_weight:
      out.push_back(scope.buffer(BufferKind::activations));
      out.push_back(scope.buffer(BufferKind::weight_operands));
      return;
    case Op::send_forward:
      return out.push_back(scope.buffer(BufferKind::output));
    case Op::send_backward:
      return out.push_back(scope.buffer(BufferKind::input_gradient));
    case Op::recompute:
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::fetch_forward:
    case Op::offload_gradients:
    case Op::reduce:
    case Op::validate:
    case Op::step:
      return;
  }
}

void append_uses(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out) {
  const Scope scope{schedule, node.action};
  switch (node.action.op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
      append_compute_uses(scope, out);
      break;
    case Op::send_forward:
    case Op::send_backward:
      append_frees(schedule, node, out);
      break;
    case Op::offload_gradients:
      out.push_back(scope.persistent(BufferKind::gradients));
      break;
    case Op::fetch_forward:
      out.push_back(scope.persistent(BufferKind::parameters));
      break;
    case Op::receive_forward:
    case Op::receive_backward:
    case Op::reduce:
    case Op::validate:
    case Op::step:
      break;
  }
  append_takes(schedule, node, out);
}

std::vector<SymbolicBuffer> takes(const Schedule& schedule, const ActionOnRank& node) {
  std::vector<SymbolicBuffer> out;
  append_takes(schedule, node, out);
  return out;
}

std::vector<SymbolicBuffer> frees(const Schedule& schedule, const ActionOnRank& node) {
  std::vector<SymbolicBuffer> out;
  append_frees(schedule, node, out);
  return out;
}

std::vector<SymbolicBuffer> uses(const Schedule& schedule, const ActionOnRank& node) {
  std::vector<SymbolicBuffer> out;
  append_uses(schedule, node, out);
  return out;
}

}  // namespace penstock
