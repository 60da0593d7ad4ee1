// SPDX-License-Identifier: Apache-2.0
#include "execute/run_plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/kinds.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"

namespace penstock {
namespace {

constexpr auto workspace_index = static_cast<std::size_t>(BufferKind::workspace);

void check_file_shape(const RunShape& shape, const Schedule& schedule) {
  const auto& of = schedule.shape;
  if (schedule.forward_only) {
    fail(ExitCode::bad_input, "schedule {} has forwards only: training needs a B, or an I and a W, for each of them",
         schedule.name);
  }
  if (of.ranks == shape.pipeline && of.micro_batches == shape.micro_batches()) return;
  fail(ExitCode::bad_input,
       "schedule {} is for {} ranks and {} micro-batches, but the deck asks for parallel.pipeline {} and global_batch "
       "{} / (micro_batch {} x data {}) = {} micro-batches",
       schedule.name, of.ranks, of.micro_batches, shape.pipeline, shape.global_batch, shape.micro_batch, shape.replicas,
       shape.micro_batches());
}

Schedule compute_schedule(const RunShape& shape) {
  if (shape.schedule.file) {
    auto schedule = read_schedule_csv(shape.schedule_csv, *shape.schedule.file);
    check_file_shape(shape, schedule);
    return schedule;
  }
  const auto micro_batches = static_cast<std::int32_t>(shape.micro_batches());
  return generate(deck_name(shape.schedule.kind), generator_options(shape.schedule, shape.pipeline, micro_batches));
}

void check_slices(const RunShape& shape, const Schedule& schedule) {
  if (schedule.shape.slices <= shape.sequence) return;
  fail(ExitCode::bad_input, "schedule {} cuts each sequence into {} slices, but training.sequence is {} tokens",
       schedule.name, schedule.shape.slices, shape.sequence);
}

/// A part without a product would be an action that does nothing: the file was written for another model.
void check_parts(const PlannedSchedule& training) {
  for (const Stage stage : all<Stage>(training.stages.size())) {
    const std::int64_t products = StageMath{training.stages[stage]}.weight_products();
    const std::int32_t parts = training.schedule.parts_of_weight(stage);
    if (parts <= products) continue;
    fail(ExitCode::bad_input,
         "schedule {} cuts the weight gradients of stage {} into {} parts, but the stage's layers have {} matrix "
         "products; cut them into at most as many parts",
         training.schedule.name, stage, parts, products);
  }
}

Schedule training_schedule(const RunShape& shape) {
  const auto compute = compute_schedule(shape);
  CompletionOptions options;
  options.recompute = PerStage<bool>{compute.shape.stages, shape.recompute == Recompute::full};
  options.split_weight_gradients = shape.schedule.splits_backward();
  options.tied_embeddings = shape.model.tie_embeddings;
  options.steps_wait = shape.steps_wait_for_norm ? StepsWait::for_norm : StepsWait::for_reduction;
  auto schedule = complete(compute, options);
  require_valid(schedule, validate(schedule));
  return schedule;
}

/// A forward-only schedule over the same stages on the same ranks, in the same slices.
Schedule evaluation_schedule(const Schedule& training, std::int64_t micro_batches) {
  auto schedule = add_communication(
      forward_only(training.rank_of, static_cast<std::int32_t>(micro_batches), training.shape.slices));
  require_valid(schedule, validate(schedule));
  return schedule;
}

PerStage<StageShape> stage_shapes(const RunShape& shape, const Partition& partition, std::int64_t sequences,
                                  std::int32_t slices) {
  PerStage<StageShape> stages{partition.stages.size()};
  for (const Stage stage : all<Stage>(partition.stages.size())) {
    stages[stage] = {shape.model,
                     partition.stages[stage].begin,
                     partition.stages[stage].end,
                     stage == Stage{0},
                     stage.value() + 1 == partition.stages.size(),
                     sequences,
                     shape.sequence,
                     shape.model.precision == Precision::bf16 ? DType::bf16 : DType::f32,
                     slices};
  }
  return stages;
}

PlannedSchedule with_sizes(Schedule schedule, PerStage<StageShape> stages, const Kernels& kernels) {
  PlannedSchedule planned{std::move(schedule), std::move(stages), {}, {}};
  for (const auto& stage : planned.stages) planned.bytes.push_back(StageMath{stage}.bytes(kernels));
  return planned;
}

void plan_ranks(PlannedSchedule& planned, const PerRank<PersistentLayout>& persistent) {
  for (const Rank rank : all<Rank>(planned.schedule.shape.ranks)) {
    planned.ranks.push_back(plan_rank(planned.schedule, rank, planned.bytes, persistent[rank]));
  }
}

/// With the memory that actions wait for as edges: messages that a file places itself can close a cycle through it.
void require_valid_with_memory(const PlannedSchedule& planned) {
  std::vector<MemoryEdge> edges;
  for (const auto& rank : planned.ranks) {
    const auto own = memory_edges(rank);
    edges.insert(edges.end(), own.begin(), own.end());
  }
  require_valid(planned.schedule, validate(planned.schedule, edges));
}

}  // namespace

Bytes RunPlan::planned_device_bytes(Rank rank) const {
  return std::max({training.ranks[rank].peak, validation.ranks[rank].peak, generation.ranks[rank].peak});
}

RunPlan make_run_plan(const RunShape& shape, const Kernels& kernels) {
  check(shape.model);
  RunPlan plan;
  plan.shape = shape;
  auto schedule = training_schedule(shape);
  check_slices(shape, schedule);
  plan.partition = shape.layers_per_stage ? listed_partition(shape.model.layers, *shape.layers_per_stage)
                                          : even_partition(shape.model.layers, schedule.shape.stages);
  if (plan.partition.stages.size() != schedule.shape.stages) {
    fail(ExitCode::bad_input, "parallel.layers_per_stage lists {} stages, but the schedule has {}",
         plan.partition.stages.size(), schedule.shape.stages);
  }
  const auto stages = [&](std::int64_t sequences) {
    return stage_shapes(shape, plan.partition, sequences, schedule.shape.slices);
  };
  plan.validation =
      with_sizes(evaluation_schedule(schedule, shape.micro_batches()), stages(shape.micro_batch), kernels);
  plan.generation = with_sizes(evaluation_schedule(schedule, 1), stages(1), kernels);
  auto training_stages = stages(shape.micro_batch);
  plan.training = with_sizes(std::move(schedule), std::move(training_stages), kernels);
  check_parts(plan.training);
  plan.generation.bytes[plan.generation.schedule.last_stage()][workspace_index] += generation_logits_bytes(shape.model);

  for (const Rank rank : all<Rank>(shape.pipeline)) {
    plan.persistent.push_back(
        lay_out_persistent({&plan.training.schedule, &plan.validation.schedule, &plan.generation.schedule}, rank,
                           {plan.training.bytes, plan.validation.bytes, plan.generation.bytes}));
  }
  for (auto* planned : {&plan.training, &plan.validation, &plan.generation}) plan_ranks(*planned, plan.persistent);
  require_valid_with_memory(plan.training);
  return plan;
}

void check_fits(const RunPlan& plan) {
  // The largest plan speaks for all: what is enough for it is enough for every rank.
  const RankPlan* largest = &plan.training.ranks[Rank{0}];
  for (const auto* planned : {&plan.training, &plan.validation, &plan.generation}) {
    for (const auto& rank : planned->ranks) largest = rank.peak > largest->peak ? &rank : largest;
  }
  check_capacity(*largest, plan.shape.device_capacity);
}

Bytes generation_logits_bytes(const ModelSpec& model) {
  return {round_up(model.vocabulary * size_of(DType::f32), buffer_alignment)};
}

Bytes generation_logits_offset(const RunPlan& plan) {
  const Stage last = plan.generation.schedule.last_stage();
  return plan.generation.bytes[last][workspace_index] - generation_logits_bytes(plan.shape.model);
}

}  // namespace penstock
