// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/commands.hpp"
#include "app/modelled.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"
#include "simulate/simulate.hpp"
#include "trace/draw.hpp"

namespace penstock {
namespace {

/// A schedule and one step of it.
struct Drawn {
  Schedule schedule;
  Timeline timeline;
  StepTimes times;
  std::string priced;  ///< what the times are
  TimeUnit unit = TimeUnit::price;
  ScheduleOptions asked{};  ///< by the deck, if it is one
};

Drawn in_units(Schedule schedule) {
  Drawn drawn{.schedule = std::move(schedule), .priced = "where F, I, W, R last 1 and B 2"};
  drawn.timeline = simulate(drawn.schedule, unit_prices(drawn.schedule), {}, {}, &drawn.times);
  return drawn;
}

/// What cannot run is written all the same, so that its findings can be looked up.
void require_valid_or_write(const ShowCommand& command, const Schedule& schedule, const std::string& csv,
                            const std::string& name) {
  try {
    require_valid_file(schedule, csv, name);
  } catch (const Error&) {
    if (!command.csv.empty()) write_text(command.csv, write_schedule_csv(schedule));
    throw;
  }
}

Drawn of_csv(const ShowCommand& command) {
  auto schedule = complete(load_schedule_csv(command.file), {});
  require_valid_or_write(command, schedule, read_text(command.file), command.file);
  return in_units(std::move(schedule));
}

Drawn of_deck(const ShowCommand& command) {
  const auto modelled = read_modelled_deck(command.file, command.overrides);
  const ModelledRun run = modelled_run(modelled.deck, modelled.hardware);
  const Priced priced = price(run);
  if (run.schedule.file) require_valid_or_write(command, priced.schedule, run.schedule_csv, *run.schedule.file);
  const ScheduleOptions& asked = modelled.deck.schedule;
  if (modelled.hardware.unit) {
    Drawn drawn = in_units(priced.expected.value_or(priced.schedule));
    drawn.asked = asked;
    return drawn;
  }
  auto step = simulate(priced, plan_ranks(priced));
  const std::string hardware = "on " + modelled.hardware.name;
  return {priced.schedule, std::move(step.timeline), step.times, hardware, TimeUnit::second, asked};
}

std::string list_text(const Schedule& schedule) {
  std::string text;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    text += fmt::format("rank {}:", rank);
    for (const auto& action : schedule.actions[rank]) text += " " + to_text(action, schedule.shape.slices);
    text += "\n";
  }
  return text;
}

std::string stages_text(const Schedule& schedule) {
  if (!schedule.backward) return counted(schedule.shape.stages, "stage");
  return fmt::format("{} forward and {} backward stages", schedule.shape.stages, schedule.backward->rank_of.size());
}

Timeline compute_only(Timeline timeline) {
  std::erase_if(timeline.spans, [](const Span& span) { return span.lane != Lane::compute; });
  return timeline;
}

/// What the file of a schedule does not say.
void note_what_is_left_out(const std::string& file, const Drawn& drawn) {
  if (drawn.schedule.recomputes_late) {
    log::note(
        "{}: the notation has no word for an R that waits for its output's gradient, as here "
        "(schedule.early_recompute: false): run from the file, R starts as soon as its input is there",
        file);
  }
  if (drawn.asked.exchange != Exchange::none) {
    log::note(
        "{}: the notation has no word for schedule.exchange: run from the file, each rank attends to all keys of its "
        "slices itself",
        file);
  }
  if (drawn.asked.vocabulary_parallel) {
    log::note(
        "{}: schedule.vocabulary_parallel is priced within F and B, and not in the file: run from it, the first and "
        "the "
        "last stage have the vocabulary",
        file);
  }
}

}  // namespace

ExitCode show(const ShowCommand& command) {
  const Drawn drawn = command.file.ends_with(".csv") ? of_csv(command) : of_deck(command);
  if (!command.csv.empty()) {
    write_text(command.csv, write_schedule_csv(drawn.schedule));
    note_what_is_left_out(command.csv, drawn);
  }
  if (!command.svg.empty()) {
    write_text(command.svg, draw_svg(command.compute_only ? compute_only(drawn.timeline) : drawn.timeline, drawn.unit));
  }
  if (command.csv == "-" || command.svg == "-") return ExitCode::finished;
  const auto& shape = drawn.schedule.shape;
  fmt::print("{}: {}, {}, {}, {}; bubble {:.2f} % {}\n{}\n", drawn.schedule.name, counted(shape.ranks, "rank"),
             stages_text(drawn.schedule), counted(shape.micro_batches, "micro-batch", "micro-batches"),
             counted(shape.slices, "slice"), 100 * drawn.times.bubble_makespan, drawn.priced,
             draw_text(drawn.timeline, command.columns, drawn.unit));
  if (command.all_actions) fmt::print("{}", list_text(drawn.schedule));
  return ExitCode::finished;
}

}  // namespace penstock
