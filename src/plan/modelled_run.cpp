// SPDX-License-Identifier: Apache-2.0
#include "plan/modelled_run.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "cost/model_cost.hpp"
#include "memory/weight_memory.hpp"
#include "model/parameters.hpp"
#include "schedule/kinds.hpp"
#include "schedule/partition.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"
#include "schedule/weight_parts.hpp"
#include "schedule/weight_placement.hpp"

namespace penstock {
namespace {

Schedule file_schedule(const ModelledRun& run) {
  Schedule schedule = read_schedule_csv(run.schedule_csv, *run.schedule.file);
  const ScheduleShape& shape = schedule.shape;
  if (schedule.shares_vocabulary) {
    fail(ExitCode::bad_input,
         "schedule {} has EF, VF, VB and EB, which the model of cost knows as a part of F and B alone: ask for kind "
         "slimpipe with schedule.vocabulary_parallel: true",
         schedule.name);
  }
  if (shape.ranks == run.cost.pipeline && shape.micro_batches == run.micro_batches) return schedule;
  fail(ExitCode::bad_input, "schedule {} is for {} and {}, but the deck asks for parallel.pipeline {} and {}",
       schedule.name, counted(shape.ranks, "rank"), counted(shape.micro_batches, "micro-batch", "micro-batches"),
       run.cost.pipeline, counted(run.micro_batches, "micro-batch", "micro-batches"));
}

Schedule compute_schedule(const ModelledRun& run) {
  if (run.schedule.file) {
    Schedule schedule = file_schedule(run);
    if (schedule.forward_only) {
      fail(ExitCode::bad_input, "schedule {} has forwards only: a step needs a B, or an I and a W, for each of them",
           schedule.name);
    }
    return schedule;
  }
  return generate(deck_name(run.schedule.kind), generator_options(run.schedule, run.cost.pipeline, run.micro_batches));
}

/// Whether the run sends part of its activations to the host.
bool offloads(const ModelledRun& run) {
  return run.cost.offload_ratio > 0;
}

Schedule complete_schedule(const ModelledRun& run, const Schedule& compute) {
  CompletionOptions options;
  options.recompute = fully_recomputed(recompute_modes(compute, run.recompute, run.recompute_by_stage));
  options.split_weight_gradients = run.schedule.splits_backward();
  options.tied_embeddings = run.cost.model.tie_embeddings;
  options.steps_wait = run.steps_wait;
  options.late_checkpoints = run.schedule.checkpoint_messages == CheckpointMessages::synchronous;
  options.stream_parameters = run.stream_parameters;
  options.resident_stages = run.resident_stages;
  if (offloads(run)) options.offload_nearest = run.offload_nearest;
  return complete(compute, options);
}

/// Cuts the layers as the schedule has its stages.
void cut_layers(const ModelledRun& run, CostShape& cost, Schedule& compute) {
  const std::int32_t layers = cost.model.layers;
  const auto forward = run.layers_per_stage ? listed_partition(layers, *run.layers_per_stage)
                                            : even_partition(layers, compute.shape.stages);
  if (forward.stages.size() != compute.shape.stages) {
    fail(ExitCode::bad_input, "parallel.layers_per_stage lists {}, but the schedule has {}",
         counted(forward.stages.size(), "stage"), compute.shape.stages);
  }
  cost.forward_stages = forward.stages;
  if (compute.backward) {
    const Partition backward = even_partition(layers, compute.backward->rank_of.size());
    cost.backward_stages = backward.stages;
    compute.backward->fed_by = feeding_stages(forward, backward);
  }
}

bool is_activation(BufferKind kind) {
  return kind == BufferKind::activations || kind == BufferKind::offloadable || kind == BufferKind::logits ||
         kind == BufferKind::weight_operands;
}

/// Walks one rank's list with what is live of some kinds.
class LivePeaks {
 public:
  LivePeaks(const Priced& priced, Rank rank) : priced_{priced}, rank_{rank} {}

  void walk(SimulatedRank& result) {
    for (const Action& action : priced_.schedule.actions[rank_]) {
      const ActionOnRank node{rank_, action};
      for (const SymbolicBuffer& buffer : takes(priced_.schedule, node)) count(buffer, 1);
      if (action.op == Op::offload_activations) on_host_ += bytes_of(*moved_by(priced_.schedule, node));
      result.peak_activations = std::max(result.peak_activations, activations_);
      result.peak_units = std::max(result.peak_units, units_);
      most_on_host_ = std::max(most_on_host_, on_host_);
      for (const SymbolicBuffer& buffer : frees(priced_.schedule, node)) count(buffer, -1);
      if (action.op == Op::reload_activations) on_host_ = on_host_ - bytes_of(*moved_by(priced_.schedule, node));
    }
    result.peak_host += most_on_host_;
  }

 private:
  Bytes bytes_of(const SymbolicBuffer& buffer) const {
    return priced_.costs.bytes()[buffer.stage][static_cast<std::size_t>(buffer.kind)];
  }
  void count(const SymbolicBuffer& buffer, std::int32_t sign) {
    if (buffer.kind == BufferKind::activations) units_ += sign;
    if (is_activation(buffer.kind)) activations_ += bytes_of(buffer) * sign;
  }

  const Priced& priced_;
  Rank rank_;
  Bytes activations_;
  Bytes on_host_;
  Bytes most_on_host_;
  std::int32_t units_ = 0;
};

/// Host memory that the states of the rank's stages take for the whole run: fp32 masters and moments, fp32 gradients,
/// and the working copy.
Bytes host_states(const Priced& priced, Rank rank) {
  const CostShape& shape = priced.costs.shape();
  if (shape.optimizer == Place::device) return {};
  const bool streams = priced.schedule.streams_parameters;
  const auto& ranks = priced.schedule.ranks(Pass::backward);
  Bytes total;
  for (const Stage stage : all<Stage>(ranks.size())) {
    if (ranks[stage] != rank) continue;
    const auto kind = priced.schedule.backward ? BufferKind::backward_parameters : BufferKind::parameters;
    const StageBytes& bytes = priced.costs.bytes()[stage];
    const Bytes gradients = bytes[static_cast<std::size_t>(BufferKind::gradients)];
    const auto numbers =
        static_cast<std::int64_t>(static_cast<double>(gradients.value) / storage_bytes(shape.gradients));
    // Masters and both moments are fp32 and shared by the replicas.
    total += gradients + Bytes{numbers * 12 / shape.data};
    if (streams) total += bytes[static_cast<std::size_t>(kind)];
  }
  return total;
}

/// The completed schedule with its prices.
Priced priced(const ModelledRun& run, CostShape cost, const Schedule& compute) {
  Schedule schedule = complete_schedule(run, compute);
  cost.slices = schedule.shape.slices;
  cost.key_cost = run.schedule.key_cost(attention_cost_per_key(cost.model));
  cost.pipeline = schedule.shape.ranks;
  cost.recompute = recompute_modes(schedule, run.recompute, run.recompute_by_stage);
  return {std::move(schedule), CostModel{std::move(cost), run.hardware}};
}

/// Into how many parts the W of each stage is cut.
PerStage<std::uint8_t> weight_parts(const ModelledRun& run, const Priced& split) {
  if (run.schedule.weight_grain == WeightGrain::whole) return {};
  PerStage<std::uint8_t> parts;
  for (const Stage stage : all<Stage>(split.schedule.ranks(Pass::backward).size())) {
    parts.push_back(finest_weight_parts(split.costs.weight_products(stage)));
  }
  return parts;
}

/// Where all of a schedule keeps the persistent buffers of each rank.
PerRank<PersistentLayout> persistent_layouts(const Priced& priced) {
  PerRank<PersistentLayout> layouts;
  for (const Rank rank : all<Rank>(priced.schedule.shape.ranks)) {
    layouts.push_back(lay_out_persistent({&priced.schedule}, rank, {priced.costs.bytes()}));
  }
  return layouts;
}

/// The plans of the schedule that runs, or of that which is expected.
PerRank<RankPlan> plan_ranks(const Priced& priced, const Schedule& schedule) {
  const auto persistent = persistent_layouts(priced);
  PerRank<RankPlan> plans;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    plans.push_back(plan_rank(schedule, rank, priced.costs.bytes(), persistent[rank]));
  }
  return plans;
}

/// The schedule with each W in its place, by the prices of the run.
Schedule with_placed_weight_gradients(const ModelledRun& run, const CostShape& cost, const Schedule& compute,
                                      WeightOrder order) {
  require_placeable(run.schedule, offloads(run));
  const Priced split = priced(run, cost, compute);
  Schedule in_parts = compute;
  in_parts.weight_parts = weight_parts(run, split);
  const WeightMemory memory{.complete = [&](const Schedule& schedule) { return complete_schedule(run, schedule); },
                            .bytes = split.costs.bytes(),
                            .persistent = persistent_layouts(split),
                            .capacity = run.capacity};
  const Prices durations = [&](const ActionOnRank& node) { return split.costs.price(in_parts, node); };
  return place_weight_gradients(in_parts, memory, durations, order);
}

}  // namespace

Prices Priced::prices() const {
  return [this](const ActionOnRank& node) { return costs.price(schedule, node); };
}

LinkUses Priced::link_uses() const {
  if (costs.hardware().unit) return {};
  return [this](const ActionOnRank& node) -> LinkUse {
    // Wires and the two directions of copies are numbered apart.
    constexpr std::int32_t kinds = 3;
    const Lane lane = lane_of(node.action.op);
    std::optional<std::int32_t> link;
    std::int32_t kind = 0;
    if (lane == Lane::send) {
      link = costs.shared_resource(node.rank, *peer_of(schedule, node.action));
    } else if (lane == Lane::to_device || lane == Lane::to_host) {
      link = costs.shared_copy(node.rank, lane);
      kind = lane == Lane::to_device ? 1 : 2;
    }
    if (!link) return {};
    return {.links = {kinds * *link + kind, LinkUse::none}, .seconds = costs.price(schedule, node)};
  };
}

Priced price(const ModelledRun& run) {
  CostShape cost = run.cost;
  Schedule compute = compute_schedule(run);
  cut_layers(run, cost, compute);
  if (run.schedule.weight_gradients != WeightGradients::placed) return priced(run, std::move(cost), compute);
  if (run.schedule.weight_queue == WeightQueue::fixed) {
    return priced(run, cost, with_placed_weight_gradients(run, cost, compute, WeightOrder::shortest));
  }
  Priced result = priced(run, cost, with_placed_weight_gradients(run, cost, compute, WeightOrder::latest));
  result.schedule.weights_run_early = true;
  result.expected = complete_schedule(run, with_placed_weight_gradients(run, cost, compute, WeightOrder::waiting));
  return result;
}

Bytes most_planned_bytes(const Priced& priced) {
  Bytes most;
  for (const RankPlan& plan : plan_ranks(priced)) most = std::max(most, plan.peak);
  return most;
}

PerRank<RankPlan> plan_ranks(const Priced& priced) {
  return plan_ranks(priced, priced.schedule);
}

Bytes most_host_bytes(const Priced& priced) {
  if (priced.costs.hardware().unit) return {};
  const CostShape& shape = priced.costs.shape();
  const std::int32_t ranks = priced.schedule.shape.ranks;
  PerRank<Bytes> of_device;
  for (const Rank rank : all<Rank>(ranks)) {
    SimulatedRank walked;
    walked.peak_host = host_states(priced, rank);
    LivePeaks{priced, rank}.walk(walked);
    of_device.push_back(walked.peak_host);
  }
  const std::int32_t of_node = priced.costs.hardware().node.devices;
  Bytes most;
  for (std::int32_t first = 0; first < ranks * shape.devices() * shape.data; first += of_node) {
    Bytes node;
    for (std::int32_t device = first; device < first + of_node; ++device) {
      node += of_device[Rank{device / shape.rank_stride() % ranks}];
    }
    most = std::max(most, node);
  }
  return most;
}

double utilization_of(const Priced& priced, Seconds step) {
  const HardwareOptions& hardware = priced.costs.hardware();
  if (hardware.unit) return 0;
  const double peak = hardware.products.nominal_peak.value_or(hardware.products.peak);
  return model_flops_utilization(priced.costs.shape(), priced.schedule.shape.micro_batches, step, peak);
}

Timeline simulated_timeline(const Priced& priced, const PerRank<RankPlan>& plans, const Prices& prices,
                            const LinkUses& links, StepTimes& times) {
  const Schedule& schedule = priced.expected ? *priced.expected : priced.schedule;
  const auto in_time = priced.expected ? plan_ranks(priced, schedule) : plans;
  return simulate(schedule, prices, {in_time.begin(), in_time.end()}, links, &times);
}

SimulatedStep simulate(const Priced& priced, const PerRank<RankPlan>& plans) {
  SimulatedStep step;
  step.timeline = simulated_timeline(priced, plans, priced.prices(), priced.link_uses(), step.times);
  for (const Rank rank : all<Rank>(plans.size())) {
    SimulatedRank result;
    result.peak_device = plans[rank].peak;
    result.computes = step.times.computes[static_cast<std::size_t>(rank.value())];
    result.peak_host = host_states(priced, rank);
    LivePeaks{priced, rank}.walk(result);
    step.ranks.push_back(result);
  }
  step.utilization = utilization_of(priced, step.times.step);
  return step;
}

}  // namespace penstock
