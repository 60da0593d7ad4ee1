// SPDX-License-Identifier: Apache-2.0
#include "plan/modelled_run.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "cost/model_cost.hpp"
#include "schedule/kinds.hpp"
#include "schedule/partition.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

Schedule compute_schedule(const ModelledRun& run) {
  if (run.schedule.file) return read_schedule_csv(run.schedule_csv, *run.schedule.file);
  return generate(deck_name(run.schedule.kind), generator_options(run.schedule, run.cost.pipeline, run.micro_batches));
}

/// Whether the run sends part of its activations to the host.
bool offloads(const ModelledRun& run) {
  return run.cost.offload_ratio > 0;
}

Schedule complete_schedule(const ModelledRun& run, const Schedule& compute) {
  CompletionOptions options;
  options.recompute = PerStage<bool>{compute.ranks(Pass::backward).size(), run.recompute == Recompute::full};
  options.split_weight_gradients = run.schedule.split_backward;
  options.tied_embeddings = run.cost.model.tie_embeddings;
  options.steps_wait = run.steps_wait;
  options.stream_parameters = run.stream_parameters;
  options.resident_stages = run.resident_stages;
  if (offloads(run)) options.offload_nearest = run.offload_nearest;
  return complete(compute, options);
}

/// The forward stage that holds the first layer of each backward stage.
PerStage<Stage> feeding_stages(const PerStage<LayerRange>& forward, const PerStage<LayerRange>& backward) {
  PerStage<Stage> fed_by;
  std::int32_t feeding = 0;
  for (const LayerRange& range : backward) {
    while (forward[Stage{feeding}].end <= range.begin) ++feeding;
    fed_by.push_back(Stage{feeding});
  }
  return fed_by;
}

/// Cuts the layers as the schedule has its stages. With uneven stages the borders decide which forward stage feeds a
/// backward stage, not the numbers of stages alone.
void cut_layers(const ModelledRun& run, CostShape& cost, Schedule& compute) {
  const std::int32_t layers = cost.model.layers;
  const auto forward = run.layers_per_stage ? listed_partition(layers, *run.layers_per_stage)
                                            : even_partition(layers, compute.shape.stages);
  cost.forward_stages = forward.stages;
  if (compute.backward) {
    cost.backward_stages = even_partition(layers, compute.backward->rank_of.size()).stages;
    compute.backward->fed_by = feeding_stages(cost.forward_stages, cost.backward_stages);
  }
}

PerStage<Recompute> recompute_of(const Schedule& schedule, Recompute recompute) {
  PerStage<Recompute> result(schedule.ranks(Pass::backward).size(), recompute);
  for (const Stage stage : all<Stage>(result.size())) {
    if (recomputes(schedule, stage)) result[stage] = Recompute::full;
  }
  return result;
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
  Schedule schedule = complete_schedule(run, compute);
  cost.slices = schedule.shape.slices;
  cost.pipeline = schedule.shape.ranks;
  cost.recompute = recompute_of(schedule, run.recompute);
  return {std::move(schedule), CostModel{std::move(cost), run.hardware}};
}

PerRank<RankPlan> plan_ranks(const Priced& priced) {
  PerRank<RankPlan> plans;
  for (const Rank rank : all<Rank>(priced.schedule.shape.ranks)) {
    const auto persistent = lay_out_persistent({&priced.schedule}, rank, {priced.costs.bytes()});
    plans.push_back(plan_rank(priced.schedule, rank, priced.costs.bytes(), persistent));
  }
  return plans;
}

double utilization_of(const Priced& priced, Seconds step) {
  const HardwareOptions& hardware = priced.costs.hardware();
  if (hardware.unit) return 0;
  const double peak = hardware.products.nominal_peak.value_or(hardware.products.peak);
  return model_flops_utilization(priced.costs.shape(), priced.schedule.shape.micro_batches, step, peak);
}

SimulatedStep simulate(const Priced& priced, const PerRank<RankPlan>& plans) {
  const std::vector<RankPlan> all_plans{plans.begin(), plans.end()};
  SimulatedStep step;
  step.timeline = simulate(priced.schedule, priced.prices(), all_plans, priced.link_uses(), &step.times);
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
