// SPDX-License-Identifier: Apache-2.0
#include "app/modelled.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "app/job.hpp"
#include "app/text_file.hpp"
#include "base/error.hpp"
#include "config/hardware_file.hpp"
#include "config/reader.hpp"
#include "schedule/validator.hpp"

namespace penstock {
namespace {

std::string path_of_hardware(const std::string& named, const std::string& deck_path) {
  const std::filesystem::path path{named};
  std::error_code none;
  if (path.is_absolute() || std::filesystem::exists(path, none)) return named;
  const auto beside_deck = std::filesystem::path{deck_path}.parent_path() / path;
  return std::filesystem::exists(beside_deck, none) ? beside_deck.string() : named;
}

CostShape cost_shape(const Deck& deck) {
  CostShape shape;
  shape.model = model_spec(deck);
  shape.sequence = deck.training.sequence;
  shape.micro_batch = deck.training.micro_batch;
  shape.slices = deck.schedule.slices;
  shape.pipeline = deck.parallel.pipeline;
  shape.tensor = deck.parallel.tensor;
  shape.context = deck.parallel.context;
  shape.expert = deck.parallel.expert;
  shape.data = deck.parallel.data;
  shape.neighbours = deck.parallel.neighbours;
  shape.exchange = deck.schedule.exchange;
  shape.exchange_grain = deck.schedule.exchange_grain;
  shape.vocabulary_parallel = deck.schedule.vocabulary_parallel;
  shape.offload_ratio = deck.memory.offload_activations;
  shape.optimizer = deck.memory.optimizer;
  shape.exposure = deck.exposure;
  return shape;
}

}  // namespace

HardwareOptions hardware_of(const Deck& deck, const std::string& deck_path, const std::vector<std::string>& overrides) {
  if (deck.hardware) return read_hardware(path_of_hardware(*deck.hardware, deck_path), overrides);
  if (!overrides.empty()) {
    fail(ExitCode::bad_input,
         "--set {}: the deck names no hardware file whose key that could be; name one with hardware",
         overrides.front());
  }
  return unit_hardware();
}

std::string absolute_hardware_path(const Deck& deck, const std::string& deck_path) {
  if (!deck.hardware) return {};
  return std::filesystem::absolute(path_of_hardware(*deck.hardware, deck_path)).lexically_normal().string();
}

ModelledDeck read_modelled_deck(const std::string& path, const std::vector<std::string>& overrides, DeckUse use) {
  const auto split = split_overrides(overrides);
  auto [deck, notes] = read_noted_deck(path, split.deck, use);
  ModelledDeck modelled{std::move(deck), {}, std::move(notes)};
  modelled.hardware = hardware_of(modelled.deck, path, split.hardware);
  return modelled;
}

Bytes device_capacity(const Deck& deck, const HardwareOptions& hardware) {
  return hardware.unit ? deck.memory.device : hardware.device.memory - hardware.device.reserve;
}

std::string capacity_name(const Deck& deck, const HardwareOptions& hardware) {
  return hardware.unit ? "memory.device" : fmt::format("device.memory - device.reserve of {}", *deck.hardware);
}

const RankPlan& largest_of(const PerRank<RankPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const RankPlan& a, const RankPlan& b) { return a.peak < b.peak; });
}

ModelledRun modelled_run(const Deck& deck, const HardwareOptions& hardware) {
  ModelledRun run;
  run.cost = cost_shape(deck);
  run.hardware = hardware;
  run.schedule = deck.schedule;
  if (deck.schedule.file) run.schedule_csv = read_text(*deck.schedule.file);
  run.layers_per_stage = deck.parallel.layers_per_stage;
  run.recompute = deck.memory.recompute.value_or(Recompute::none);
  run.recompute_by_stage = deck.memory.recompute_by_stage;
  run.micro_batches = micro_batches(deck);
  run.steps_wait = steps_wait(deck);
  run.stream_parameters = deck.memory.parameters == Place::host;
  run.resident_stages = deck.memory.resident_stages;
  run.capacity = device_capacity(deck, hardware);
  return run;
}

Prices expected_durations(const Deck& deck, const std::string& deck_path) {
  ModelledRun run = modelled_run(deck, deck.hardware ? hardware_of(deck, deck_path, {}) : flop_hardware());
  run.schedule.weight_gradients = WeightGradients::split;
  const auto priced = std::make_shared<const Priced>(price(run));
  return [priced](const ActionOnRank& node) { return priced->costs.price(priced->schedule, node); };
}

Priced price_valid(const ModelledRun& run) {
  Priced priced = price(run);
  // Generators are proved by tests; a file is not.
  if (run.schedule.file) require_valid_file(priced.schedule, run.schedule_csv, *run.schedule.file);
  return priced;
}

}  // namespace penstock
