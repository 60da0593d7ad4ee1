// SPDX-License-Identifier: Apache-2.0
#include "execute/run_plan.hpp"

#include <algorithm>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "execute/weight_schedule.hpp"
#include "schedule/generators.hpp"
#include "schedule/kinds.hpp"
#include "schedule/lockstep.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/streaming.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"
#include "schedule/vocabulary.hpp"

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
       "schedule {} is for {} and {}, but the deck asks for parallel.pipeline {} and global_batch "
       "{} / (micro_batch {} x data {}) = {}",
       schedule.name, counted(of.ranks, "rank"), counted(of.micro_batches, "micro-batch", "micro-batches"),
       shape.pipeline, shape.global_batch, shape.micro_batch, shape.replicas,
       counted(shape.micro_batches(), "micro-batch", "micro-batches"));
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
  fail(ExitCode::bad_input, "schedule {} cuts each sequence into {}, but training.sequence is {}", schedule.name,
       counted(schedule.shape.slices, "slice"), counted(shape.sequence, "token"));
}

void check_shares(const RunShape& shape, const Schedule& schedule) {
  if (!schedule.shares_vocabulary || shape.model.vocabulary >= schedule.shape.ranks) return;
  fail(ExitCode::bad_input,
       "schedule {} shares the vocabulary over {}, but model.vocabulary is {}: each rank needs one at "
       "least",
       schedule.name, counted(schedule.shape.ranks, "rank"), counted(shape.model.vocabulary, "token"));
}

/// A part without a product would be an action that does nothing: the file was written for another model.
void check_parts(const PlannedSchedule& training) {
  const PerStage<StageShape>& stages = training.stages_of(Pass::backward);
  for (const Stage stage : all<Stage>(stages.size())) {
    const std::int64_t products = StageMath{stages[stage]}.weight_products();
    const std::int32_t parts = training.schedule.parts_of_weight(stage);
    if (parts <= products) continue;
    fail(ExitCode::bad_input,
         "schedule {} cuts the weight gradients of stage {} into {}, but the stage's layers have {}; "
         "cut them into at most as many parts",
         training.schedule.name, stage, counted(parts, "part"), counted(products, "matrix product"));
  }
}

/// Cuts the layers as the schedule has its stages.
void cut_layers(RunPlan& plan, Schedule& compute) {
  const std::int32_t layers = plan.shape.model.layers;
  plan.partition = plan.shape.layers_per_stage ? listed_partition(layers, *plan.shape.layers_per_stage)
                                               : even_partition(layers, compute.shape.stages);
  if (plan.partition.stages.size() != compute.shape.stages) {
    fail(ExitCode::bad_input, "parallel.layers_per_stage lists {}, but the schedule has {}",
         counted(plan.partition.stages.size(), "stage"), compute.shape.stages);
  }
  plan.backward_partition = plan.partition;
  if (!compute.backward) return;
  plan.backward_partition = even_partition(layers, compute.backward->rank_of.size());
  compute.backward->fed_by = feeding_stages(plan.partition, plan.backward_partition);
}

Schedule complete_schedule(const RunShape& shape, const Schedule& compute) {
  CompletionOptions options;
  options.recompute = fully_recomputed(recompute_modes(compute, shape.recompute, shape.recompute_by_stage));
  options.split_weight_gradients = shape.schedule.splits_backward();
  options.tied_embeddings = shape.model.tie_embeddings;
  options.steps_wait = shape.steps_wait;
  options.late_checkpoints = shape.schedule.checkpoint_messages == CheckpointMessages::synchronous;
  options.stream_parameters = shape.stream_parameters;
  options.resident_stages = shape.resident_stages;
  if (shape.offload_activations > 0) options.offload_nearest = usual_offload_nearest;
  options.share_vocabulary = shape.schedule.vocabulary_parallel;
  return complete(compute, options);
}

void require_valid_training(const RunShape& shape, const Schedule& schedule,
                            const std::vector<MemoryEdge>& edges = {}) {
  if (shape.schedule.file) return require_valid_file(schedule, shape.schedule_csv, *shape.schedule.file, edges);
  require_valid(schedule, validate(schedule, edges));
}

/// Puts the weight gradients where the deck wants them, if it says so.
void place_weight_gradients(RunPlan& plan, const Schedule& compute) {
  if (plan.shape.schedule.weight_gradients != WeightGradients::placed) return;
  require_placeable(plan.shape.schedule, plan.training.schedule.offloads_activations);
  const auto complete = [&](const Schedule& schedule) { return complete_schedule(plan.shape, schedule); };
  plan.training.schedule = with_placed_weight_gradients(plan, compute, complete);
  require_valid_training(plan.shape, plan.training.schedule);
}

/// A forward-only schedule over the same stages on the same ranks, in the same slices.
Schedule evaluation_schedule(const RunShape& shape, const Schedule& training, std::int64_t micro_batches) {
  const auto order = training.streams_parameters ? ForwardOrder::stage_by_stage : ForwardOrder::as_early_as_possible;
  auto schedule =
      forward_only(training.rank_of, static_cast<std::int32_t>(micro_batches), training.shape.slices, order);
  schedule.shape.ranks = training.shape.ranks;  // those without a forward stage have empty lists
  while (schedule.actions.size() < training.shape.ranks) schedule.actions.push_back({});
  if (training.streams_parameters) schedule = add_parameter_streaming(schedule, shape.resident_stages);
  if (training.shares_vocabulary) schedule = share_vocabulary(schedule);
  schedule = add_communication(schedule);
  require_valid(schedule, validate(schedule));
  return schedule;
}

/// What the forward of each stage keeps. Decoupled passes keep nothing.
void set_recompute(PlannedSchedule& training, const RunShape& shape) {
  if (training.schedule.backward) return;
  const auto modes = recompute_modes(training.schedule, shape.recompute, shape.recompute_by_stage);
  for (const Stage stage : all<Stage>(modes.size())) training.stages[stage].recompute = modes[stage];
}

/// The borders of backward stages inside each forward stage.
void set_checkpoints(PlannedSchedule& training) {
  if (!training.schedule.backward) return;
  for (const Stage stage : all<Stage>(training.backward_stages.size())) {
    if (stage.value() == 0) continue;
    const Stage source = training.schedule.backward->fed_by[stage];
    training.stages[source].checkpoints.push_back(training.backward_stages[stage].begin);
  }
}

/// Where the ranks share the vocabulary, no stage is at an end of the model.
PerStage<StageShape> stage_shapes(const RunShape& shape, const Partition& partition, const Schedule& schedule,
                                  std::int64_t sequences) {
  const bool has_ends = !schedule.shares_vocabulary;
  PerStage<StageShape> stages{partition.stages.size()};
  for (const Stage stage : all<Stage>(partition.stages.size())) {
    stages[stage] = {shape.model,
                     partition.stages[stage].begin,
                     partition.stages[stage].end,
                     has_ends && stage == Stage{0},
                     has_ends && stage.value() + 1 == partition.stages.size(),
                     sequences,
                     shape.sequence,
                     shape.model.precision == Precision::bf16 ? DType::bf16 : DType::f32,
                     schedule.shape.slices,
                     shape.schedule.key_cost(attention_cost_per_key(shape.model)),
                     shape.offload_activations};
  }
  return stages;
}

/// Notes what the actions of each rank share, where the schedule exchanges attention: it takes memory.
void note_sharing(const Schedule& schedule, PerStage<StageShape>& stages) {
  if (!schedule.exchange.shares()) return;
  const Lockstep lockstep{schedule};
  PerRank<SharingLimits> limits;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) limits.push_back(lockstep.limits_of(rank));
  for (const Stage stage : all<Stage>(stages.size())) stages[stage].sharing = limits[schedule.rank_of[stage]];
}

PerRank<VocabularyShape> share_shapes(const Schedule& schedule, const StageShape& any) {
  PerRank<VocabularyShape> shares;
  if (!schedule.shares_vocabulary) return shares;
  StageShape run = any;
  run.first = run.last = true;
  const Rank last = schedule.rank_of[schedule.last_stage()];
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    shares.push_back({run, schedule.shape.ranks, rank, schedule.rank_of[Stage{0}], last});
  }
  return shares;
}

/// The stage, or the share, that forms logits for all of them to be seen.
Stage speaking_stage(const Schedule& schedule) {
  const Stage last = schedule.last_stage();
  return schedule.shares_vocabulary ? schedule.share_of(schedule.rank_of[last]) : last;
}

void size(PlannedSchedule& planned, const Kernels& kernels) {
  planned.shares = share_shapes(planned.schedule, planned.stages[Stage{0}]);
  planned.bytes = PerStage<StageBytes>(planned.schedule.most_stages(), StageBytes{});
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const PerStage<StageShape>& stages = planned.stages_of(pass);
    for (const Stage stage : all<Stage>(stages.size())) {
      planned.raise(planned.bytes[stage], StageMath{stages[stage]}.bytes(kernels), pass);
    }
  }
  for (const VocabularyShape& share : planned.shares) {
    planned.bytes[planned.schedule.share_of(share.rank)] = VocabularyMath{share}.bytes(kernels);
  }
}

bool is_of_pass(BufferKind kind, Pass pass) {
  switch (kind) {
    case BufferKind::tokens:
    case BufferKind::workspace:
      return true;
    case BufferKind::parameters:
    case BufferKind::input:
    case BufferKind::output:
    case BufferKind::key_values:
      return pass == Pass::forward;
    default:
      return pass == Pass::backward;
  }
}

std::vector<PlannedSchedule*> needed_schedules(RunPlan& plan) {
  if (plan.shape.purpose == Purpose::text) return {&plan.generation};
  return {&plan.training, &plan.validation, &plan.generation};
}

void lay_out_persistent(RunPlan& plan) {
  const auto needed = needed_schedules(plan);
  std::vector<const Schedule*> schedules;
  std::vector<PerStage<StageBytes>> bytes;
  schedules.reserve(needed.size());
  bytes.reserve(needed.size());
  for (const auto* planned : needed) {
    schedules.push_back(&planned->schedule);
    bytes.push_back(planned->bytes);
  }
  for (const Rank rank : all<Rank>(plan.shape.pipeline)) {
    plan.persistent.push_back(lay_out_persistent(schedules, rank, bytes));
  }
}

void plan_ranks(PlannedSchedule& planned, const PerRank<PersistentLayout>& persistent) {
  for (const Rank rank : all<Rank>(planned.schedule.shape.ranks)) {
    planned.ranks.push_back(plan_rank(planned.schedule, rank, planned.bytes, persistent[rank]));
  }
}

/// With the memory that actions wait for as edges: messages that a file places itself can close a cycle through it.
void require_valid_with_memory(const RunShape& shape, const PlannedSchedule& planned) {
  std::vector<MemoryEdge> edges;
  for (const auto& rank : planned.ranks) {
    const auto own = memory_edges(rank);
    edges.insert(edges.end(), own.begin(), own.end());
  }
  require_valid_training(shape, planned.schedule, edges);
}

}  // namespace

bool RunPlan::keeps_previous_states() const {
  return steps_wait_of(training.schedule) == StepsWait::speculative && shape.rollback == Rollback::copy;
}

Bytes RunPlan::planned_device_bytes(Rank rank) const {
  Bytes most{0};
  for (const auto* planned : {&training, &validation, &generation}) {
    if (!planned->ranks.empty()) most = std::max(most, planned->ranks[rank].peak);
  }
  return most;
}

TokenBlocks PlannedSchedule::tokens_of(Stage stage) const {
  if (schedule.shares_vocabulary) return {schedule.is_share(stage), schedule.is_share(stage)};
  const bool is_last = stage == schedule.last_stage() || stage == schedule.last_stage(Pass::backward);
  return {stage.value() == 0, is_last};
}

void PlannedSchedule::raise(StageBytes& bytes_of_number, const StageBytes& of_stage, Pass pass) const {
  for (std::size_t kind = 0; kind < of_stage.size(); ++kind) {
    if (schedule.backward && !is_of_pass(static_cast<BufferKind>(kind), pass)) continue;
    bytes_of_number[kind] = std::max(bytes_of_number[kind], of_stage[kind]);
  }
}

RunPlan make_run_plan(const RunShape& shape, const Kernels& kernels) {
  check(shape.model);
  RunPlan plan;
  plan.shape = shape;
  Schedule compute = compute_schedule(shape);
  cut_layers(plan, compute);
  plan.training.schedule = complete_schedule(shape, compute);
  const Schedule& schedule = plan.training.schedule;
  require_valid_training(shape, schedule);
  check_slices(shape, schedule);
  check_shares(shape, schedule);
  plan.training.stages = stage_shapes(shape, plan.partition, schedule, shape.micro_batch);
  if (schedule.backward) {
    plan.training.backward_stages = stage_shapes(shape, plan.backward_partition, schedule, shape.micro_batch);
  }
  set_recompute(plan.training, shape);
  note_sharing(schedule, plan.training.stages);
  plan.validation.schedule = evaluation_schedule(shape, schedule, shape.micro_batches());
  plan.validation.stages = plan.training.stages;
  plan.generation.schedule = evaluation_schedule(shape, schedule, 1);
  plan.generation.stages = stage_shapes(shape, plan.partition, schedule, 1);
  set_checkpoints(plan.training);
  for (auto* planned : {&plan.training, &plan.validation, &plan.generation}) size(*planned, kernels);
  check_parts(plan.training);
  plan.generation.bytes[speaking_stage(plan.generation.schedule)][workspace_index] +=
      generation_logits_bytes(shape.model);

  lay_out_persistent(plan);
  if (shape.purpose == Purpose::training) place_weight_gradients(plan, compute);
  for (auto* planned : needed_schedules(plan)) plan_ranks(*planned, plan.persistent);
  if (shape.purpose == Purpose::training) require_valid_with_memory(shape, plan.training);
  return plan;
}

namespace {

Bytes bytes_of(const PlannedSchedule& planned, BufferKind kind, Stage stage) {
  return planned.bytes[stage][static_cast<std::size_t>(kind)];
}

/// The stage of the rank that has the most bytes of `kind`.
Stage largest_stage(const PlannedSchedule& planned, Rank rank, Pass pass, BufferKind kind) {
  const PerStage<Rank>& ranks = planned.schedule.ranks(pass);
  std::optional<Stage> largest;
  for (const Stage stage : all<Stage>(ranks.size())) {
    if (ranks[stage] != rank) continue;
    if (!largest || bytes_of(planned, kind, stage) > bytes_of(planned, kind, *largest)) largest = stage;
  }
  return largest.value_or(Stage{0});
}

/// What the stages take that come and go; empty where they stay.
std::string text_on_stages(const RunPlan& plan, Rank rank) {
  const PlannedSchedule& training = plan.training;
  if (!training.schedule.streams_parameters || plan.shape.purpose == Purpose::text) return "";
  const auto backward_kind = training.schedule.backward ? BufferKind::backward_parameters : BufferKind::parameters;
  const Stage forward = largest_stage(training, rank, Pass::forward, BufferKind::parameters);
  const Stage backward = largest_stage(training, rank, Pass::backward, BufferKind::gradients);
  return fmt::format(
      "Its largest stage of the forward pass, {}, has {} of parameters; that of the backward pass, {}, has {} of "
      "parameters and {} of gradients; memory.resident_stages {} are on the device at once.\n",
      forward, to_text(bytes_of(training, BufferKind::parameters, forward)), backward,
      to_text(bytes_of(training, backward_kind, backward)),
      to_text(bytes_of(training, BufferKind::gradients, backward)), plan.shape.resident_stages);
}

}  // namespace

const RankPlan& largest_rank_plan(const RunPlan& plan) {
  const RankPlan* largest = &plan.generation.ranks[Rank{0}];
  for (const auto* planned : {&plan.training, &plan.validation, &plan.generation}) {
    for (const auto& rank : planned->ranks) {
      if (rank.peak > largest->peak) largest = &rank;
    }
  }
  return *largest;
}

void check_fits(const RunPlan& plan, const Advice& advice) {
  const RankPlan& largest = largest_rank_plan(plan);
  check_capacity(largest, plan.shape.device_capacity, "memory.device",
                 [&] { return text_on_stages(plan, largest.rank) + (advice ? advice() : ""); });
}

Bytes generation_logits_bytes(const ModelSpec& model) {
  return {round_up(model.vocabulary * size_of(DType::f32), buffer_alignment)};
}

Bytes generation_logits_offset(const RunPlan& plan) {
  const Stage speaking = speaking_stage(plan.generation.schedule);
  return plan.generation.bytes[speaking][workspace_index] - generation_logits_bytes(plan.shape.model);
}

}  // namespace penstock
