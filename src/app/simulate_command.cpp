// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/fit_advice.hpp"
#include "app/modelled.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "model/parameters.hpp"
#include "trace/draw.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// A deck's run with all that is known of it.
struct Simulation {
  ModelledDeck modelled;
  Priced priced;
  PerRank<RankPlan> plans;
  SimulatedStep step;

  bool in_units() const { return modelled.hardware.unit; }
  TimeUnit unit() const { return in_units() ? TimeUnit::price : TimeUnit::second; }
  Bytes capacity() const { return device_capacity(modelled.deck, modelled.hardware); }
  const RankPlan& largest() const { return largest_of(plans); }
  bool fits() const { return largest().peak <= capacity(); }
};

Simulation simulate_deck(const SimulateCommand& command) {
  ModelledDeck modelled = read_modelled_deck(command.deck, command.overrides);
  Priced priced = price_valid(modelled_run(modelled.deck, modelled.hardware));
  PerRank<RankPlan> plans = plan_ranks(priced);
  SimulatedStep step = simulate(priced, plans);
  return {std::move(modelled), std::move(priced), std::move(plans), std::move(step)};
}

Json rank_json(const SimulatedRank& rank) {
  return {{"peak_device_bytes", rank.peak_device.value},
          {"peak_activation_bytes", rank.peak_activations.value},
          {"peak_activation_units", rank.peak_units},
          {"compute_seconds", rank.computes.value},
          {"peak_host_bytes", rank.peak_host.value}};
}

std::string to_json(const Simulation& simulation) {
  const auto& [modelled, priced, plans, step] = simulation;
  Json json{{"version", program_version()},
            {"schedule", priced.schedule.name},
            {"hardware", modelled.hardware.name},
            {"parameters", parameter_count(priced.costs.shape().model)},
            {"step_seconds", step.times.step.value},
            {"bubble_makespan", step.times.bubble_makespan},
            {"bubble_span", step.times.bubble_span},
            {"exposed_optimizer_seconds", step.times.exposed_optimizer.value},
            {"utilization", simulation.in_units() ? Json(nullptr) : Json(step.utilization)},
            {"device_capacity_bytes", simulation.capacity().value},
            {"fits", simulation.fits()},
            {"ranks", Json::array()}};
  for (const SimulatedRank& rank : step.ranks) json["ranks"].push_back(rank_json(rank));
  return json.dump(2);
}

std::string model_name(const ModelOptions& model) {
  return std::string{model.preset ? deck_name(*model.preset) : deck_name(model.family)};
}

/// What is simulated, in one line.
std::string headline(const Simulation& simulation) {
  const auto& deck = simulation.modelled.deck;
  const auto& shape = simulation.priced.costs.shape();
  const auto& schedule = simulation.priced.schedule;
  const std::string experts = shape.expert > 1 ? fmt::format(" (experts over {})", shape.expert) : "";
  return fmt::format(
      "{}, {:.3g} x 10^9 parameters; {}, {} of {} x {} in {}; {}; pipeline {} x tensor {} "
      "x "
      "context {} x data {} = {}{}\n",
      model_name(deck.model), static_cast<double>(parameter_count(shape.model)) / 1e9, schedule.name,
      counted(schedule.shape.micro_batches, "micro-batch", "micro-batches"), shape.micro_batch,
      counted(shape.sequence, "token"), counted(shape.slices, "slice"), simulation.modelled.hardware.name,
      shape.pipeline, shape.tensor, shape.context, shape.data,
      counted(shape.pipeline * shape.devices() * shape.data, "device"), experts);
}

std::string time_text(const Simulation& simulation, Seconds time) {
  if (simulation.in_units()) return fmt::format("{:.6g} units", time.value);
  return time.value >= 0.1 ? fmt::format("{:.3f} s", time.value) : fmt::format("{:.3f} ms", time.value * 1e3);
}

std::string figures_text(const Simulation& simulation) {
  const StepTimes& times = simulation.step.times;
  std::string text = fmt::format("step time           {}\n", time_text(simulation, times.step));
  text += fmt::format("bubble, makespan    {:.2f} %: idle share of all ranks from the first to the last computation\n",
                      100 * times.bubble_makespan);
  text += fmt::format(
      "bubble, span        {:.2f} %: the same of the longest span of one rank, from its own first to its "
      "own last computation\n",
      100 * times.bubble_span);
  text += fmt::format("exposed optimizer   {}: from the last computation to the end of the step\n",
                      time_text(simulation, times.exposed_optimizer));
  if (!simulation.in_units()) {
    text += fmt::format(
        "utilization         {:.2f} % of the peak of all devices: model FLOPs, causal attention, nothing "
        "counted twice\n",
        100 * simulation.step.utilization);
  }
  return text;
}

std::string ranks_text(const Simulation& simulation) {
  std::string text = fmt::format("{:>4} {:>14} {:>12} {:>12} {:>7} {:>12}\n", "rank", "computes", "device",
                                 "activations", "units", "host");
  for (const Rank rank : all<Rank>(simulation.plans.size())) {
    const SimulatedRank& of = simulation.step.ranks[static_cast<std::size_t>(rank.value())];
    text += fmt::format("{:>4} {:>14} {:>12} {:>12} {:>7} {:>12}\n", rank, time_text(simulation, of.computes),
                        to_text(of.peak_device), to_text(of.peak_activations), of.peak_units, to_text(of.peak_host));
  }
  return text + "peaks of one device each; a unit is what one slice of a micro-batch keeps on one stage\n";
}

/// The host memory of a node is shared: said, but no reason to refuse, since nothing is planned there to the byte.
std::string host_text(const Simulation& simulation) {
  if (simulation.in_units()) return {};
  const NodeFigures& node = simulation.modelled.hardware.node;
  Bytes most;
  for (const SimulatedRank& rank : simulation.step.ranks) most = std::max(most, rank.peak_host);
  const Bytes needed = most * node.devices;
  if (needed <= node.host_memory) return {};
  return fmt::format("note: a node of {} needs up to {} of host memory, and it has {}\n",
                     counted(node.devices, "device"), to_text(needed), to_text(node.host_memory));
}

void print_report(const Simulation& simulation, int columns) {
  for (const auto& line : simulation.modelled.notes) fmt::print("note: {}\n", line);
  fmt::print("{}\n{}\n{}{}", headline(simulation), figures_text(simulation), ranks_text(simulation),
             host_text(simulation));
  if (simulation.fits()) {
    fmt::print("fits: rank {} needs the most, {} of {}\n", simulation.largest().rank,
               to_text(simulation.largest().peak), to_text(simulation.capacity()));
  }
  if (columns > 0) {
    fmt::print("\n{}\n", draw_text(simulation.step.timeline, columns, simulation.unit()));
  }
}

/// The simulated pipeline stands for all replicas: a run's trace has the ranks of each.
Timeline over_replicas(const Timeline& one, std::int32_t replicas) {
  Timeline whole = one;
  whole.ranks = one.ranks * replicas;
  for (std::int32_t replica = 1; replica < replicas; ++replica) {
    const std::int32_t first = replica * one.ranks;
    for (Span span : one.spans) {
      span.rank += first;
      if (span.peer >= 0) span.peer += first;
      whole.spans.push_back(span);
    }
    for (MemorySample sample : one.memory) {
      sample.rank += first;
      whole.memory.push_back(sample);
    }
  }
  return whole;
}

}  // namespace

ExitCode simulate(const SimulateCommand& command) {
  const Simulation simulation = simulate_deck(command);
  const Timeline& timeline = simulation.step.timeline;
  if (!command.trace.empty()) {
    write_trace(command.trace, over_replicas(timeline, simulation.modelled.deck.parallel.data));
  }
  if (!command.svg.empty()) write_text(command.svg, draw_svg(timeline, simulation.unit()));
  if (command.json) {
    fmt::print("{}\n", to_json(simulation));
  } else if (command.svg != "-") {
    print_report(simulation, command.columns);
  }
  std::fflush(stdout);  // what follows may end on standard error
  const auto& [deck, hardware, notes] = simulation.modelled;
  check_capacity(simulation.largest(), simulation.capacity(), capacity_name(deck, hardware),
                 modelled_advice(deck, command.deck, hardware));
  return ExitCode::finished;
}

}  // namespace penstock
