// SPDX-License-Identifier: Apache-2.0
#include "plan/candidates.hpp"

#include <algorithm>
#include <set>

#include "schedule/kinds.hpp"

namespace penstock {
namespace {

using Numbers = std::vector<std::int32_t>;

Numbers divisors(std::int32_t number, std::int32_t most) {
  Numbers result;
  for (std::int32_t i = 1; i <= std::min(number, most); ++i) {
    if (number % i == 0) result.push_back(i);
  }
  return result;
}

template <class T>
std::vector<T> or_else(const std::vector<T>& chosen, std::vector<T> otherwise) {
  return chosen.empty() ? std::move(otherwise) : chosen;
}

std::vector<ScheduleKind> all_kinds() {
  std::vector<ScheduleKind> kinds;
  for (const KindEntry& entry : kind_table()) kinds.push_back(entry.kind);
  return kinds;
}

/// Goes through the choices, the outer ones first, and keeps what all rules take.
class Enumeration {
 public:
  explicit Enumeration(const PlanRequest& request) : request_{request}, run_{request.base} {
    run_.capacity = request.capacity;
    run_.recompute_by_stage.reset();
  }

  std::vector<ModelledRun> result() {
    for (const std::int32_t tensor : tensors()) {
      for (const std::int32_t context : or_else(request_.search.context, {request_.base.cost.context})) {
        for (const std::int32_t pipeline : pipelines()) add_layout(tensor, context, pipeline);
      }
    }
    return std::move(found_);
  }

 private:
  const ModelSpec& model() const { return request_.base.cost.model; }

  Numbers tensors() const {
    Numbers usual;
    const std::int32_t most = request_.base.hardware.unit ? 1 : request_.base.hardware.node.devices;
    for (std::int32_t tensor = 1; tensor <= most; tensor *= 2) usual.push_back(tensor);
    return or_else(request_.search.tensor, usual);
  }

  Numbers pipelines() const { return or_else(request_.search.pipeline, divisors(request_.devices, model().layers)); }

  void add_layout(std::int32_t tensor, std::int32_t context, std::int32_t pipeline) {
    const std::int64_t of_pipeline = std::int64_t{tensor} * context * pipeline;
    if (of_pipeline > request_.devices || request_.devices % of_pipeline != 0) return;
    if (model().heads % tensor != 0 || pipeline > model().layers) return;
    if (request_.base.cost.sequence % context != 0) return;
    CostShape& cost = run_.cost;
    cost.tensor = tensor;
    cost.context = context;
    cost.pipeline = pipeline;
    cost.data = static_cast<std::int32_t>(request_.devices / of_pipeline);
    for (const Neighbours neighbours : neighbours_of(pipeline)) {
      cost.neighbours = neighbours;
      add_experts();
    }
  }

  /// Without replicas, and without a pipeline, there is nothing to choose.
  std::vector<Neighbours> neighbours_of(std::int32_t pipeline) const {
    if (run_.cost.data == 1 || pipeline == 1) return {request_.base.cost.neighbours};
    return or_else(request_.search.neighbours, {request_.base.cost.neighbours});
  }

  void add_experts() {
    CostShape& cost = run_.cost;
    for (const std::int32_t expert : or_else(request_.search.expert, {request_.base.cost.expert})) {
      cost.expert = expert;
      if (std::int64_t{1} * cost.copies() % expert != 0) continue;
      if (model().is_mixture() ? model().experts % expert != 0 : expert > 1) continue;
      for (const std::int32_t micro_batch : or_else(request_.search.micro_batch, {request_.base.cost.micro_batch})) {
        add_micro_batches(micro_batch);
      }
    }
  }

  void add_micro_batches(std::int32_t micro_batch) {
    const std::int64_t at_once = std::int64_t{micro_batch} * run_.cost.data;
    if (request_.global_batch % at_once != 0) return;
    run_.cost.micro_batch = micro_batch;
    run_.micro_batches = static_cast<std::int32_t>(request_.global_batch / at_once);
    for (const ScheduleKind kind : or_else(request_.search.kinds, all_kinds())) {
      run_.schedule = {};
      run_.schedule.kind = kind;
      const bool recomputes_by_itself = entry_of(kind).limits.streams_parameters;
      run_.schedule.early_recompute = recomputes_by_itself && request_.base.schedule.early_recompute;
      for (const std::int32_t slices : slices_of(entry_of(kind).limits)) {
        run_.schedule.slices = slices;
        for (const std::int32_t stages : virtual_of(entry_of(kind).limits)) add_stages(stages);
      }
    }
  }

  Numbers slices_of(const KindLimits& limits) const {
    if (!limits.slices) return {1};
    std::set<std::int32_t> usual{1, 2, 4, 8, 16};
    for (const std::int32_t factor : {1, 2, 4, 8}) usual.insert(factor * run_.cost.pipeline);
    constexpr std::int32_t least_tokens = 128;
    const std::int32_t tokens = run_.cost.sequence / run_.cost.context;
    Numbers result;
    for (const std::int32_t slices : or_else(request_.search.slices, Numbers{usual.begin(), usual.end()})) {
      const bool is_chosen = !request_.search.slices.empty();
      if (tokens % slices == 0 && (is_chosen || slices == 1 || tokens / slices >= least_tokens)) {
        result.push_back(slices);
      }
    }
    return result;
  }

  Numbers virtual_of(const KindLimits& limits) const {
    const std::int32_t per_rank = model().layers / run_.cost.pipeline;
    Numbers usual;
    constexpr std::int32_t most = 16;
    for (const std::int32_t stages : divisors(per_rank, most)) {
      if (model().layers % (stages * run_.cost.pipeline) == 0) usual.push_back(stages);
    }
    if (usual.empty()) usual.push_back(1);
    Numbers result;
    for (const std::int32_t stages : or_else(request_.search.virtual_stages, usual)) {
      const bool is_allowed =
          limits.two_partitions || (stages >= limits.least_virtual && stages <= limits.most_virtual);
      if (is_allowed && std::int64_t{stages} * run_.cost.pipeline <= model().layers) result.push_back(stages);
    }
    return result;
  }

  void add_stages(std::int32_t stages) {
    if (!entry_of(run_.schedule.kind).limits.two_partitions) {
      run_.schedule.virtual_stages = stages;
      return add_memory();
    }
    // Stages of equal duration, and those twice and four times as fine.
    for (const std::int32_t factor : {1, 2, 3, 4}) {
      run_.schedule.forward_virtual = stages;
      run_.schedule.backward_virtual = factor * stages;
      if (std::int64_t{factor} * stages * run_.cost.pipeline <= model().layers) add_memory();
    }
  }

  void add_memory() {
    const GeneratorOptions options = generator_options(run_.schedule, run_.cost.pipeline, run_.micro_batches);
    if (is_another_kind(options) || !faults_of(run_.schedule.kind, options).empty()) return;
    const bool recomputes_anyway = entry_of(run_.schedule.kind).limits.streams_parameters;
    const auto recomputes = recomputes_anyway ? std::vector{Recompute::full}
                                              : or_else(request_.search.recompute,
                                                        {Recompute::none, Recompute::attention, Recompute::selective,
                                                         Recompute::layers, Recompute::full});
    for (const Recompute recompute : recomputes) {
      run_.recompute = recompute;
      for (const double offload : offload_shares(recompute)) {
        run_.cost.offload_ratio = offload;
        add_weight_gradients();
      }
    }
  }

  /// What R forms again of a whole sequence has no time to leave before its backward.
  std::vector<double> offload_shares(Recompute recompute) const {
    if (recompute == Recompute::full && run_.schedule.slices == 1) return {0};
    return or_else(request_.search.offload_activations, {request_.base.cost.offload_ratio});
  }

  void add_weight_gradients() {
    const bool may_place = entry_of(run_.schedule.kind).limits.places_weight_gradients && run_.cost.offload_ratio == 0;
    for (const WeightGradients where :
         or_else(request_.search.weight_gradients, {request_.base.schedule.weight_gradients})) {
      run_.schedule.weight_gradients = where;
      if (!may_place) run_.schedule.weight_gradients = WeightGradients::whole;
      const bool is_placed = run_.schedule.weight_gradients == WeightGradients::placed;
      run_.schedule.weight_grain = is_placed ? request_.base.schedule.weight_grain : WeightGrain::whole;
      add_exchanges();
      if (!may_place) return;
    }
  }

  void add_exchanges() {
    const bool is_lockstep = run_.schedule.kind == ScheduleKind::slimpipe;
    run_.cost.vocabulary_parallel = is_lockstep && request_.base.cost.vocabulary_parallel;
    for (const Exchange exchange : or_else(request_.search.exchange, {request_.base.cost.exchange})) {
      run_.cost.exchange = is_lockstep ? exchange : Exchange::none;
      run_.schedule.exchange = run_.cost.exchange;
      found_.push_back(run_);
      if (!is_lockstep) return;
    }
  }

  /// Whether a simpler kind gives the same lists.
  bool is_another_kind(const GeneratorOptions& options) const {
    const bool one_stage = options.virtual_stages == 1;
    if (options.pipeline == 1 && !entry_of(run_.schedule.kind).limits.two_partitions &&
        run_.schedule.kind != ScheduleKind::mobius) {
      // One rank has nobody to wait for: an order of its own is worth something for its memory only.
      const bool is_plain = run_.schedule.kind == ScheduleKind::one_f_one_b;
      return !is_plain && (run_.schedule.kind != ScheduleKind::svpp || options.slices == 1 || !one_stage);
    }
    switch (run_.schedule.kind) {
      case ScheduleKind::interleaved:
      case ScheduleKind::breadth_first:
        return one_stage;
      case ScheduleKind::terapipe:
      case ScheduleKind::seq1f1b:
        return options.slices == 1;
      case ScheduleKind::seq1f1b_interleaved:
        return options.slices == 1 || one_stage;
      case ScheduleKind::gpipe:
        return !one_stage;
      case ScheduleKind::svpp:
        return options.slices == 1 && one_stage;
      default:
        return false;
    }
  }

  const PlanRequest& request_;
  ModelledRun run_;
  std::vector<ModelledRun> found_;
};

}  // namespace

std::vector<ModelledRun> candidates(const PlanRequest& request) {
  return Enumeration{request}.result();
}

}  // namespace penstock
