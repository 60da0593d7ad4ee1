// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes.hpp"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "schedule/streaming.hpp"
#include "schedule/vocabulary.hpp"

namespace penstock {

namespace {

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

}  // namespace

bool gives_input_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}

Schedule add_recompute(const Schedule& schedule, const PerStage<bool>& stages) {
  const std::int32_t backward_stages = schedule.ranks(Pass::backward).size();
  if (stages.size() != backward_stages) {
    fail(ExitCode::bad_input, "recompute is given for {}; schedule '{}' has {}", counted(stages.size(), "stage"),
         schedule.name, backward_stages);
  }
  const std::int32_t slices = schedule.shape.slices;
  Schedule result = expanded(schedule, [&](const Action& action, std::vector<Action>& out) {
    const bool opens_backward = gives_input_gradient(action.op) && action.slice.value() == slices - 1;
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
