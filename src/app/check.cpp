// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/fit_advice.hpp"
#include "app/host_memory.hpp"
#include "app/job.hpp"
#include "app/kill_place.hpp"
#include "app/modelled.hpp"
#include "app/training_data.hpp"
#include "base/counted.hpp"
#include "config/checks.hpp"
#include "config/hardware_file.hpp"
#include "config/reader.hpp"
#include "execute/rank_state.hpp"
#include "kernels/workers.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json rank_json(const RunPlan& plan, std::int32_t world_rank) {
  const Rank coordinate = RankPlace::of(world_rank, plan.shape.pipeline).coordinate;
  const auto host = planned_host_bytes(plan, world_rank);
  return {{"rank", world_rank},
          {"planned_device_bytes", plan.planned_device_bytes(coordinate).value},
          {"planned_host_bytes", host.of_training().value},
          {"training_bytes", plan.training.ranks[coordinate].peak.value},
          {"validation_bytes", plan.validation.ranks[coordinate].peak.value},
          {"generation_bytes", plan.generation.ranks[coordinate].peak.value}};
}

Json data_json(const TrainingData& data) {
  Json json{{"train_tokens", data.train_summary.tokens}, {"samples_per_epoch", data.train.samples_per_epoch()}};
  if (data.validation) json["validation_tokens"] = data.validation_summary->tokens;
  return json;
}

std::string to_json(const RunPlan& plan, const NodePlan& node, const TrainingData& data) {
  Json json{{"version", program_version()},
            {"parameters", parameter_count(plan.shape.model)},
            {"schedule", plan.training.schedule.name},
            {"stages", plan.training.schedule.shape.stages},
            {"micro_batches", plan.shape.micro_batches()},
            {"device_capacity_bytes", plan.shape.device_capacity.value},
            {"node_ranks", node.ranks},
            {"node_host_bytes", node.bytes.total().value},
            {"data", data_json(data)},
            {"ranks", Json::array()}};
  for (std::int32_t rank = 0; rank < plan.shape.pipeline * plan.shape.replicas; ++rank) {
    json["ranks"].push_back(rank_json(plan, rank));
  }
  return json.dump(2);
}

void print_notes(const std::vector<std::string>& notes) {
  for (const auto& line : notes) fmt::print("note: {}\n", line);
}

void print_tables(const RunPlan& plan) {
  for (const Rank rank : all<Rank>(plan.shape.pipeline)) {
    fmt::print("\npipeline rank {}, training:\n{}\n", rank, memory_table(plan.training.ranks[rank]));
  }
}

void print_host(const NodePlan& node, Bytes capacity) {
  fmt::print("\nhost memory of a node with {}: {} of {}\n{}\n", counted(node.ranks, "rank"),
             to_text(node.bytes.total()), to_text(capacity), host_memory_table(node.bytes));
}

Json priced_json(const Priced& priced, const PerRank<RankPlan>& plans) {
  Json json{{"version", program_version()},
            {"schedule", priced.schedule.name},
            {"stages", priced.schedule.shape.stages},
            {"micro_batches", priced.schedule.shape.micro_batches},
            {"ranks", Json::array()}};
  for (const RankPlan& plan : plans) {
    json["ranks"].push_back({{"rank", plan.rank.value()}, {"planned_device_bytes", plan.peak.value}});
  }
  return json;
}

/// What runs on the priced device is planned by the models of cost, for one replica.
ExitCode check_priced(const CheckCommand& command) {
  const auto [deck, hardware, notes] = read_modelled_deck(command.deck, command.overrides);
  const Priced priced = price_valid(modelled_run(deck, hardware));
  const auto plans = plan_ranks(priced);
  if (command.json) {
    fmt::print("{}\n", priced_json(priced, plans).dump(2));
  } else {
    print_notes(notes);
  }
  std::fflush(stdout);  // what follows may end on standard error
  check_capacity(largest_of(plans), device_capacity(deck, hardware), capacity_name(deck, hardware),
                 modelled_advice(deck, command.deck, hardware));
  if (!command.json) {
    for (const RankPlan& plan : plans) fmt::print("pipeline rank {}:\n{}\n\n", plan.rank, memory_table(plan));
    fmt::print("{}: the schedule is valid and the plan fits; start {}\n", command.deck, counted(plans.size(), "rank"));
  }
  return ExitCode::finished;
}

}  // namespace

ExitCode check(const CheckCommand& command) {
  const auto [deck, notes] = read_noted_deck(command.deck, split_overrides(command.overrides).deck);
  if (deck.device.kind == DeviceKind::priced) return check_priced(command);
  refuse_hardware_overrides(command.overrides);
  refuse_what_cannot_run(deck);
  Workers workers{deck.device.threads};
  const auto kernels = make_host_kernels(workers);
  const auto plan = make_run_plan(run_shape(deck, command.deck), *kernels);
  kill_place(deck, plan, deck.testing.kill.rank);
  const NodePlan node = largest_node(plan, deck);
  const Bytes capacity = node_capacity(deck);
  if (command.json) {
    fmt::print("{}\n", to_json(plan, node, open_training_data(deck, CountEntropies::no)));
  } else {
    print_notes(notes);
    fmt::print("{}\n", layout_text(plan));
  }
  std::fflush(stdout);  // what follows may end on standard error, with the table of what does not fit
  check_fits(plan, device_advice(deck, command.deck));
  check_node(node.bytes, node.ranks, capacity, node_advice(deck, command.deck, capacity));
  if (!command.json) {
    print_tables(plan);
    print_host(node, capacity);
    std::fflush(stdout);
    note_data(open_training_data(deck, CountEntropies::no));
    fmt::print("\n{}: the schedule is valid, the plan fits and the data can be read; start {}\n", command.deck,
               counted(world_size(deck), "rank"));
  }
  return ExitCode::finished;
}

}  // namespace penstock
