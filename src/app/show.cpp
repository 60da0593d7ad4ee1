// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "app/commands.hpp"
#include "app/job.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "config/reader.hpp"
#include "kernels/workers.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"
#include "simulate/simulate.hpp"
#include "trace/draw.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

Schedule schedule_of_csv(const std::string& path) {
  auto schedule = complete(load_schedule_csv(path), {});
  require_valid(schedule, validate(schedule));
  return schedule;
}

Schedule schedule_of(const ShowCommand& command) {
  if (command.file.ends_with(".csv")) return schedule_of_csv(command.file);
  const auto deck = read_deck(command.file, command.overrides);
  Workers workers{1};
  return make_run_plan(run_shape(deck), *make_host_kernels(workers)).training.schedule;
}

std::string list_text(const Schedule& schedule) {
  std::string text;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    text += fmt::format("rank {}:", rank);
    for (const auto& action : schedule.actions[rank]) text += " " + to_text(action);
    text += "\n";
  }
  return text;
}

}  // namespace

ExitCode show(const ShowCommand& command) {
  const auto schedule = schedule_of(command);
  const auto timeline = simulate(schedule, unit_prices());
  if (!command.csv.empty()) write_text(command.csv, write_schedule_csv(schedule));
  if (!command.svg.empty()) write_text(command.svg, draw_svg(timeline, TimeUnit::price));
  if (command.csv == "-" || command.svg == "-") return ExitCode::finished;
  const auto& shape = schedule.shape;
  const auto summary = summarize(timeline);
  fmt::print("{}: {}, {}, {}; bubble {:.2f} % where F, I, W, R last 1 and B 2\n{}\n", schedule.name,
             counted(shape.ranks, "rank"), counted(shape.stages, "stage"),
             counted(shape.micro_batches, "micro-batch", "micro-batches"), 100 * summary.bubble_makespan,
             draw_text(timeline, command.columns, TimeUnit::price));
  if (command.all_actions) fmt::print("{}", list_text(schedule));
  return ExitCode::finished;
}

}  // namespace penstock
