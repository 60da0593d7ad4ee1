// SPDX-License-Identifier: Apache-2.0
#include "schedule/streamed_generators.hpp"

#include <fmt/format.h>

#include "schedule/generators_common.hpp"

namespace penstock {

namespace {

/// Appends the op of one stage for all micro-batches: slices ascending in the forward pass, descending in the other.
void append_stage(std::vector<Action>& list, Op op, Stage stage, const ScheduleShape& shape) {
  for (std::int32_t m = 0; m < shape.micro_batches; ++m) {
    for (std::int32_t i = 0; i < shape.slices; ++i) {
      list.push_back(action_of(op, stage, m, op == Op::forward ? i : shape.slices - 1 - i));
    }
  }
}

std::int32_t forward_stages_of(const GeneratorOptions& options) {
  return options.forward_stages.value_or(options.pipeline * options.forward_virtual);
}

std::int32_t backward_stages_of(const GeneratorOptions& options) {
  return options.backward_stages.value_or(options.pipeline * options.backward_virtual);
}

/// The cutting of the backward pass, all stages of which are equally long, as are those of the forward pass.
BackwardStages dealt_backward_stages(std::int32_t pipeline, std::int32_t forward_stages, std::int32_t stages) {
  BackwardStages backward;
  for (const Stage stage : all<Stage>(stages)) {
    const std::int64_t dealt = std::int64_t{forward_stages} + stages - 1 - stage.value();
    backward.rank_of.push_back(Rank{static_cast<std::int32_t>(dealt % pipeline)});
    const std::int64_t begin = std::int64_t{stage.value()} * forward_stages;
    backward.fed_by.push_back(Stage{static_cast<std::int32_t>(begin / stages)});
  }
  return backward;
}

}  // namespace

Schedule mobius(const GeneratorOptions& options) {
  check_options(ScheduleKind::mobius, options);
  Schedule schedule =
      empty_schedule(fmt::format("mobius v={}", options.virtual_stages), options, Placement::round_robin);
  for (const Stage stage : all<Stage>(schedule.shape.stages)) {
    append_stage(schedule.actions[schedule.rank_of[stage]], Op::forward, stage, schedule.shape);
  }
  for (std::int32_t stage = schedule.shape.stages; stage-- > 0;) {
    append_stage(schedule.actions[schedule.rank_of[Stage{stage}]], Op::backward, Stage{stage}, schedule.shape);
  }
  schedule.recompute = PerStage<bool>(schedule.shape.stages, true);
  schedule.streams_parameters = true;
  schedule.recomputes_late = !options.early_recompute;
  return schedule;
}

Schedule spipe(const GeneratorOptions& options) {
  check_options(ScheduleKind::spipe, options);
  GeneratorOptions forward = options;
  forward.virtual_stages = 1;
  Schedule schedule = empty_schedule("", forward, Placement::round_robin);
  const std::int32_t forward_stages = forward_stages_of(options);
  const std::int32_t backward_stages = backward_stages_of(options);
  schedule.name = fmt::format("spipe {}+{}", forward_stages, backward_stages);
  schedule.shape.stages = forward_stages;
  schedule.rank_of = {};
  for (const Stage stage : all<Stage>(forward_stages)) {
    schedule.rank_of.push_back(rank_of_stage(Placement::round_robin, stage, options.pipeline));
    append_stage(schedule.actions[schedule.rank_of[stage]], Op::forward, stage, schedule.shape);
  }
  schedule.backward = dealt_backward_stages(options.pipeline, forward_stages, backward_stages);
  for (std::int32_t stage = backward_stages; stage-- > 0;) {
    append_stage(schedule.actions[schedule.backward->rank_of[Stage{stage}]], Op::backward, Stage{stage},
                 schedule.shape);
  }
  schedule.recompute = PerStage<bool>(backward_stages, true);
  schedule.streams_parameters = true;
  schedule.recomputes_late = !options.early_recompute;
  return schedule;
}

}  // namespace penstock
