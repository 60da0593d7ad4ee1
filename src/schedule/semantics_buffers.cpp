// SPDX-License-Identifier: Apache-2.0
//
// Which buffers an action takes, frees and uses.
#include <algorithm>
#include <array>
#include <cstddef>

#include "schedule/scope.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

namespace {

void append_activations(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  out.push_back(scope.buffer(BufferKind::activations));
  if (scope.schedule.offloads_activations) out.push_back(scope.buffer(BufferKind::offloadable));
}

/// The inputs of backward stages that the forward stage cuts out of its pass.
void append_checkpoints(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const auto& fed_by = scope.schedule.backward->fed_by;
  const auto first = std::lower_bound(fed_by.begin(), fed_by.end(), scope.stage());
  for (auto fed = first; fed != fed_by.end() && *fed == scope.stage(); ++fed) {
    const Stage stage{static_cast<std::int32_t>(fed - fed_by.begin())};
    if (stage.value() > 0) out.push_back(scope.buffer(BufferKind::checkpoint, stage));
  }
}

/// Whether keys and values of a forward outlive it on their own: there are later slices, and nothing else is kept.
bool keeps_key_values(const Scope& scope) {
  return scope.schedule.forward_only || recomputes(scope.schedule, scope.stage());
}

/// The buffers of a kind of the slices before.
void append_earlier_slices(const Scope& scope, BufferKind kind, std::vector<SymbolicBuffer>& out) {
  for (const Slice earlier : all<Slice>(scope.action.slice.value())) {
    out.push_back({kind, scope.stage(), scope.action.micro_batch, earlier});
  }
}

void append_forward_takes(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (keeps_key_values(scope) && !scope.is_last_slice()) out.push_back(scope.buffer(BufferKind::key_values));
  if (scope.is_decoupled()) {
    append_checkpoints(scope, out);
  } else if (!scope.schedule.forward_only && !recomputes(scope.schedule, scope.stage())) {
    append_activations(scope, out);
    if (!scope.has_output()) out.push_back(scope.buffer(BufferKind::logits));
  }
  if (!scope.has_output()) return;
  const Stage after = scope.stage().next();
  out.push_back(scope.shares_rank(after) ? scope.buffer(BufferKind::input, after) : scope.buffer(BufferKind::output));
}

/// The last slice's backward is the first to give gradients to the keys and values of all earlier ones.
void append_key_value_gradients(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (scope.is_last_slice()) append_earlier_slices(scope, BufferKind::key_value_gradients, out);
}

void append_backward_takes(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  append_key_value_gradients(scope, out);
  if (scope.schedule.streams_parameters && scope.opens_gradients())
    out.push_back(scope.of_stage(BufferKind::gradients));
  if (scope.action.op == Op::backward_input) out.push_back(scope.buffer(BufferKind::weight_operands));
  if (!scope.has_input()) return;
  const Stage before = scope.stage().previous();
  out.push_back(scope.shares_rank(before) ? scope.buffer(BufferKind::output_gradient, before)
                                          : scope.buffer(BufferKind::input_gradient));
}

void append_backward_frees(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (scope.action.op == Op::backward) append_activations(scope, out);
  if (!scope.is_last_slice()) out.push_back(scope.buffer(BufferKind::key_value_gradients));
  out.push_back(scope.buffer(scope.has_output() ? BufferKind::output_gradient : BufferKind::logits));
  if (scope.has_input()) out.push_back(scope.buffer(scope.kept_input()));
}

/// The keys and values of earlier slices, to which a slice attends.
void append_keys_and_values(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const bool on_their_own = scope.action.op == Op::forward && keeps_key_values(scope);
  append_earlier_slices(scope, on_their_own ? BufferKind::key_values : BufferKind::activations, out);
}

/// What every compute action works with beside what it takes.
void append_compute_uses(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const Op op = scope.action.op;
  if (reads_parameters(op)) out.push_back(scope.parameters());
  out.push_back(SymbolicBuffer{});
  if (!scope.has_input() || !scope.has_output()) out.push_back(scope.of_stage(BufferKind::tokens));
  if (scope.has_input() && op != Op::backward_weight) {
    out.push_back(scope.buffer(op == Op::forward ? BufferKind::input : scope.kept_input()));
  }
  if (op != Op::backward_weight) append_keys_and_values(scope, out);
  if (op == Op::forward || op == Op::recompute) return;
  out.push_back(scope.of_stage(BufferKind::gradients));
  append_activations(scope, out);
  if (op == Op::backward_weight) return out.push_back(scope.buffer(BufferKind::weight_operands));
  append_earlier_slices(scope, BufferKind::key_value_gradients, out);
  if (!scope.is_last_slice()) out.push_back(scope.buffer(BufferKind::key_value_gradients));
  out.push_back(scope.buffer(scope.has_output() ? BufferKind::output_gradient : BufferKind::logits));
}

/// A buffer of a collective action on the rank at one end of the model: of its first stage, or of its last.
void append_of_end(const Scope& scope, BufferKind kind, Stage end, std::vector<SymbolicBuffer>& out) {
  if (scope.schedule.share_of(scope.schedule.rank_of[end]) == scope.stage()) out.push_back(scope.buffer(kind, end));
}

void append_collective_takes(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const Op op = scope.action.op;
  if (op == Op::embed_forward) append_of_end(scope, BufferKind::input, Stage{0}, out);
  if (op == Op::vocabulary_forward && !scope.schedule.forward_only) out.push_back(scope.buffer(BufferKind::logits));
  if (op == Op::vocabulary_backward) {
    append_of_end(scope, BufferKind::output_gradient, scope.schedule.last_stage(), out);
  }
}

void append_collective_frees(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const Op op = scope.action.op;
  if (op == Op::embed_backward) append_of_end(scope, BufferKind::input_gradient, Stage{0}, out);
  if (op == Op::vocabulary_backward) out.push_back(scope.buffer(BufferKind::logits));
  if (op == Op::vocabulary_backward || (op == Op::vocabulary_forward && scope.schedule.forward_only)) {
    append_of_end(scope, BufferKind::output, scope.schedule.last_stage(), out);
  }
}

/// What a collective action works with beside what it takes.
void append_collective_uses(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  const Op op = scope.action.op;
  out.push_back(scope.of_stage(BufferKind::parameters));
  out.push_back(SymbolicBuffer{});
  out.push_back(scope.of_stage(BufferKind::tokens));
  if (op == Op::vocabulary_forward) {
    append_of_end(scope, BufferKind::output, scope.schedule.last_stage(), out);
  } else if (op != Op::embed_forward) {
    out.push_back(scope.of_stage(BufferKind::gradients));
    append_collective_frees(scope, out);
  }
}

// --- single buffers of the action's own stage ---

template <BufferKind kind>
void append_own(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  out.push_back(scope.buffer(kind));
}

void append_parameters(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  out.push_back(scope.parameters());
}

/// Those of a fetch that opens a stay, or that renews what has never left.
template <bool is_streamed>
void append_fetched(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (scope.schedule.streams_parameters == is_streamed) out.push_back(scope.of_stage(BufferKind::parameters));
}

void append_gradients(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  out.push_back(scope.of_stage(BufferKind::gradients));
}

void append_streamed_gradients(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (scope.schedule.streams_parameters) append_gradients(scope, out);
}

void append_recompute_takes(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  append_activations(scope, out);
  if (!scope.has_output()) out.push_back(scope.buffer(BufferKind::logits));
}

void append_forward_frees(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (keeps_key_values(scope) && scope.is_last_slice()) append_earlier_slices(scope, BufferKind::key_values, out);
  const bool is_input_done = scope.schedule.forward_only || scope.is_decoupled();
  if (is_input_done && scope.has_input()) out.push_back(scope.buffer(BufferKind::input));
}

void append_weight_frees(const Scope& scope, std::vector<SymbolicBuffer>& out) {
  if (!scope.completes_weight_gradient()) return;
  append_activations(scope, out);
  out.push_back(scope.buffer(BufferKind::weight_operands));
}

void append_nothing(const Scope& /*scope*/, std::vector<SymbolicBuffer>& /*out*/) {}

// --- the table ---

using Append = void (*)(const Scope& scope, std::vector<SymbolicBuffer>& out);

/// What an op does to memory.
struct BufferRule {
  Op op;
  Append takes;
  Append frees;
  Append uses;  ///< beside what it takes; of what moves a buffer, that buffer
};

constexpr Append none = append_nothing;
constexpr Append input = append_own<BufferKind::input>;
constexpr Append output = append_own<BufferKind::output>;
constexpr Append input_gradient = append_own<BufferKind::input_gradient>;
constexpr Append output_gradient = append_own<BufferKind::output_gradient>;
constexpr Append checkpoint = append_own<BufferKind::checkpoint>;
constexpr Append offloadable = append_own<BufferKind::offloadable>;

constexpr std::array<BufferRule, op_count> buffer_rules{{
    {Op::forward, append_forward_takes, append_forward_frees, append_compute_uses},
    {Op::backward, append_backward_takes, append_backward_frees, append_compute_uses},
    {Op::backward_input, append_backward_takes, append_backward_frees, append_compute_uses},
    {Op::backward_weight, none, append_weight_frees, append_compute_uses},
    {Op::recompute, append_recompute_takes, none, append_compute_uses},
    {Op::send_forward, none, output, output},
    {Op::receive_forward, input, none, none},
    {Op::send_backward, none, input_gradient, input_gradient},
    {Op::receive_backward, output_gradient, none, none},
    {Op::send_checkpoint, none, checkpoint, checkpoint},
    {Op::receive_checkpoint, checkpoint, none, none},
    {Op::offload_activations, none, offloadable, offloadable},
    {Op::reload_activations, offloadable, none, none},
    {Op::embed_forward, append_collective_takes, append_collective_frees, append_collective_uses},
    {Op::embed_backward, append_collective_takes, append_collective_frees, append_collective_uses},
    {Op::vocabulary_forward, append_collective_takes, append_collective_frees, append_collective_uses},
    {Op::vocabulary_backward, append_collective_takes, append_collective_frees, append_collective_uses},
    {Op::fetch_forward, append_fetched<true>, none, append_fetched<false>},
    {Op::fetch_backward, append_parameters, none, none},
    {Op::evict_forward, none, append_parameters, append_parameters},
    {Op::evict_backward, none, append_parameters, append_parameters},
    {Op::offload_gradients, none, append_streamed_gradients, append_gradients},
    {Op::reduce, none, none, none},
    {Op::validate, none, none, none},
    {Op::step, none, none, none},
    {Op::undo, none, none, none},
}};

constexpr bool are_in_the_order_of_ops() {
  for (std::size_t i = 0; i < buffer_rules.size(); ++i) {
    if (buffer_rules[i].op != static_cast<Op>(i)) return false;
  }
  return true;
}
static_assert(are_in_the_order_of_ops());

const BufferRule& rule_of(Op op) {
  return buffer_rules[static_cast<std::size_t>(op)];
}

}  // namespace

bool is_persistent(const Schedule& schedule, BufferKind kind) {
  const bool of_stage = kind == BufferKind::parameters || kind == BufferKind::gradients;
  const bool always =
      kind == BufferKind::tokens || kind == BufferKind::workspace || kind == BufferKind::optimizer_states;
  return always || (of_stage && !schedule.streams_parameters);
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
    case BufferKind::backward_parameters:
      return "backward_parameters";
    case BufferKind::checkpoint:
      return "checkpoint";
    case BufferKind::offloadable:
      return "offloadable";
    case BufferKind::key_value_gradients:
      return "key_value_gradients";
    case BufferKind::optimizer_states:
      return "optimizer_states";
    case BufferKind::key_values:
      return "key_values";
  }
  return "unknown";
}

void append_takes(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out) {
  rule_of(node.action.op).takes({schedule, node.action}, out);
}

void append_frees(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out) {
  rule_of(node.action.op).frees({schedule, node.action}, out);
}

void append_uses(const Schedule& schedule, const ActionOnRank& node, std::vector<SymbolicBuffer>& out) {
  const Scope scope{schedule, node.action};
  const BufferRule& rule = rule_of(node.action.op);
  rule.uses(scope, out);
  rule.takes(scope, out);
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

std::optional<SymbolicBuffer> moved_by(const Schedule& schedule, const ActionOnRank& node) {
  switch (lane_of(node.action.op)) {
    case Lane::compute:
    case Lane::cpu:
      return std::nullopt;
    default:
      // Each uses exactly what it moves.
      return uses(schedule, node).at(0);
  }
}

}  // namespace penstock
