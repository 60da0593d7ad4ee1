// SPDX-License-Identifier: Apache-2.0
#include "app/job.hpp"

#include <fmt/format.h>

#include "app/modelled.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "config/hardware_file.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

std::string stages_of_pass(const PerStage<Rank>& ranks, const Partition& partition, Rank rank) {
  std::string text;
  for (const Stage stage : all<Stage>(ranks.size())) {
    if (ranks[stage] != rank) continue;
    const auto layers = counted(partition.stages[stage].size(), "layer");
    text += fmt::format("{}stage {}: {}", text.empty() ? "" : ", ", stage, layers);
  }
  return text.empty() ? "no stage" : text;
}

std::string stages_text(const RunPlan& plan, Rank rank) {
  const Schedule& schedule = plan.training.schedule;
  auto forward = stages_of_pass(schedule.rank_of, plan.partition, rank);
  if (!schedule.backward) return forward;
  return fmt::format("forward {}; backward {}", forward,
                     stages_of_pass(schedule.backward->rank_of, plan.backward_partition, rank));
}

}  // namespace

StepsWait steps_wait(const Deck& deck) {
  const auto& optimizer = deck.training.optimizer;
  if (optimizer.clip == 0 && optimizer.non_finite == NonFinite::stop) return StepsWait::for_reduction;
  return optimizer.clip_mode == ClipMode::speculative ? StepsWait::speculative : StepsWait::for_norm;
}

StoreOptions store_options(const Deck& deck) {
  return {.fetch = deck.memory.fetch, .ranks_per_node = deck.parallel.ranks_per_node};
}

RunShape run_shape(const Deck& deck, const std::string& deck_path) {
  RunShape shape;
  shape.model = model_spec(deck);
  shape.pipeline = deck.parallel.pipeline;
  shape.replicas = deck.parallel.data;
  shape.layers_per_stage = deck.parallel.layers_per_stage;
  shape.schedule = deck.schedule;
  if (deck.schedule.file) shape.schedule_csv = read_text(*deck.schedule.file);
  if (deck.schedule.weight_gradients == WeightGradients::placed) shape.durations = expected_durations(deck, deck_path);
  shape.recompute = deck.memory.recompute.value_or(Recompute::none);
  shape.recompute_by_stage = deck.memory.recompute_by_stage;
  shape.offload_activations = deck.memory.offload_activations;
  shape.stream_parameters = deck.memory.parameters == Place::host;
  shape.resident_stages = deck.memory.resident_stages;
  shape.steps_wait = steps_wait(deck);
  shape.rollback = deck.memory.rollback;
  shape.sequence = deck.training.sequence;
  shape.micro_batch = deck.training.micro_batch;
  shape.global_batch = deck.training.global_batch;
  shape.device_capacity = deck.memory.device;
  return shape;
}

void refuse_hardware_overrides(const std::vector<std::string>& overrides) {
  const auto of_hardware = split_overrides(overrides).hardware;
  if (of_hardware.empty()) return;
  fail(ExitCode::bad_input, "--set {}: hardware files are for simulate, plan and the priced device; leave it out",
       of_hardware.front());
}

void check_ranks(const Deck& deck, int started) {
  const auto wanted = world_size(deck);
  if (started == wanted) return;
  fail(ExitCode::bad_input,
       "{} started, but parallel.pipeline {} x parallel.data {} = {}: start with mpirun -n {}, or change parallel",
       counted(started, "rank was", "ranks were"), deck.parallel.pipeline, deck.parallel.data, wanted, wanted);
}

std::string layout_text(const RunPlan& plan) {
  const auto& shape = plan.shape;
  auto text = fmt::format(
      "model: {} parameters, {}; schedule {}; {} = {} x {} x {}, each of {}\n", parameter_count(shape.model),
      counted(shape.model.layers, "layer"), plan.training.schedule.name, counted(shape.global_batch, "sequence"),
      counted(shape.replicas, "replica"), counted(shape.micro_batches(), "micro-batch", "micro-batches"),
      counted(shape.micro_batch, "sequence"), counted(shape.sequence, "token"));
  for (const Rank rank : all<Rank>(shape.pipeline)) {
    text += fmt::format("pipeline rank {}: {}; device memory planned {} of {}\n", rank, stages_text(plan, rank),
                        to_text(plan.planned_device_bytes(rank)), to_text(shape.device_capacity));
  }
  if (plan.training.schedule.shares_vocabulary) {
    const auto& longest = plan.training.shares[Rank{0}];
    text += fmt::format("the ranks share embedding, head and loss: {} of {} rows of the vocabulary each, at most\n",
                        longest.rows().count, shape.model.vocabulary);
  }
  text.pop_back();
  return text;
}

}  // namespace penstock
