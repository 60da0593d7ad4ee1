// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/modelled.hpp"
#include "app/search_progress.hpp"
#include "app/text_file.hpp"
#include "base/error.hpp"
#include "config/listing.hpp"
#include "plan/report.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

PlanRequest request_of(const ModelledDeck& modelled) {
  PlanRequest request;
  request.base = modelled_run(modelled.deck, modelled.hardware);
  request.global_batch = modelled.deck.training.global_batch;
  const ParallelOptions& own = modelled.deck.parallel;
  request.devices = modelled.deck.plan.devices.value_or(own.pipeline * own.tensor * own.context * own.data);
  request.capacity = device_capacity(modelled.deck, modelled.hardware);
  request.search = modelled.deck.plan.search;
  return request;
}

PlanResult search_shown(const PlanRequest& request, std::int32_t rows) {
  SearchProgress progress;
  return search(request, rows, Pruning::by_bounds, [&](const PlanResult& so_far) { progress.show(so_far); });
}

/// The deck with the choices of a layout, as `train`, `simulate` and `show` take it.
Deck deck_of(Deck deck, const ModelledRun& run) {
  deck.parallel.pipeline = run.cost.pipeline;
  deck.parallel.tensor = run.cost.tensor;
  deck.parallel.context = run.cost.context;
  deck.parallel.expert = run.cost.expert;
  deck.parallel.data = run.cost.data;
  deck.parallel.neighbours = run.cost.neighbours;
  deck.parallel.layers_per_stage.reset();
  deck.training.micro_batch = run.cost.micro_batch;
  deck.schedule = run.schedule;
  deck.schedule.exchange = run.cost.exchange;
  if (run.cost.exchange != Exchange::none) deck.schedule.exchange_grain = run.cost.exchange_grain;
  deck.schedule.vocabulary_parallel = run.cost.vocabulary_parallel;
  deck.memory.recompute = run.recompute;
  deck.memory.recompute_by_stage.reset();
  if (entry_of(run.schedule.kind).limits.streams_parameters) deck.memory.parameters.reset();
  deck.memory.offload_activations = run.cost.offload_ratio;
  return deck;
}

Json row_json(const PlannedLayout& best, const PlannedLayout& layout) {
  const CostShape& cost = layout.run.cost;
  return {{"schedule", schedule_text(layout.run)},
          {"pipeline", cost.pipeline},
          {"tensor", cost.tensor},
          {"context", cost.context},
          {"expert", cost.expert},
          {"data", cost.data},
          {"micro_batch", cost.micro_batch},
          {"activations", memory_text(layout.run)},
          {"step_seconds", layout.step.value},
          {"bubble_makespan", layout.bubble_makespan},
          {"exposed_optimizer_seconds", layout.exposed_optimizer.value},
          {"utilization", layout.utilization},
          {"peak_device_bytes", layout.peak_device.value},
          {"why_it_lost", reason_text(best, layout)}};
}

std::string to_json(const PlanResult& result) {
  Json json{
      {"candidates", result.counts.candidates}, {"simulated", result.counts.simulated}, {"layouts", Json::array()}};
  for (const PlannedLayout& layout : result.best) json["layouts"].push_back(row_json(result.best.front(), layout));
  return json.dump(2);
}

/// What is live at any one time fits; whether the addresses do is seen here, with the waits for memory in the time.
std::string whole_text(const PlannedLayout& best) {
  const Priced priced = price_valid(best.run);
  const auto plans = plan_ranks(priced);
  const SimulatedStep step = simulate(priced, plans);
  Bytes peak;
  for (const SimulatedRank& rank : step.ranks) peak = std::max(peak, rank.peak_device);
  return fmt::format("the best with every buffer at its address and the waits for memory: step {:.4g} s, peak {}\n",
                     step.times.step.value, to_text(peak));
}

}  // namespace

ExitCode plan(const PlanCommand& command) {
  const ModelledDeck modelled = read_modelled_deck(command.deck, command.overrides, DeckUse::search);
  const PlanRequest request = request_of(modelled);
  const PlanResult result = search_shown(request, modelled.deck.plan.rows);
  if (result.counts.candidates == 0) {
    fail(ExitCode::bad_input,
         "{}: no layout of plan.devices {} keeps all rules: pipeline x tensor x context x data is their number, "
         "micro_batch x data divides training.global_batch {}, stages are at most the layers, {}, tensor divides the "
         "heads "
         "and context the sequence, experts are those of a mixture, and slices and virtual stages as each kind takes "
         "them "
         "(doc/schedules.md); widen plan.search",
         command.deck, request.devices, request.global_batch, request.base.cost.model.layers);
  }
  if (result.best.empty()) {
    fail(ExitCode::does_not_fit, "{}: {}", command.deck, no_fit_text(request, result, what_would_fit(request)));
  }
  const PlannedLayout& best = result.best.front();
  Deck planned = deck_of(modelled.deck, best.run);
  // The planned deck may lie elsewhere than the one that names the file.
  if (planned.hardware) planned.hardware = absolute_hardware_path(modelled.deck, command.deck);
  const std::string moved = move_aside(command.output);
  write_text(command.output, effective_deck(planned));
  if (command.json) {
    fmt::print("{}\n", to_json(result));
  } else {
    fmt::print("{}{}{}the best is in {}: penstock simulate {}\n", to_text(result), whole_text(best), moved,
               command.output, command.output);
  }
  return ExitCode::finished;
}

}  // namespace penstock
