// SPDX-License-Identifier: Apache-2.0
#include "app/priced_run.hpp"

#include <utility>

#include "app/commands.hpp"
#include "app/end_job.hpp"
#include "app/fit_advice.hpp"
#include "app/modelled.hpp"
#include "app/run_directory.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

void check_ranks(const Deck& deck, const Communicator& world) {
  if (world.size() == deck.parallel.pipeline) return;
  fail(ExitCode::bad_input,
       "{} started, but a priced run takes one for each rank of a pipeline, parallel.pipeline {}: start with "
       "mpirun -n {}, or change parallel (replicas are alike: one is run)",
       counted(world.size(), "rank was", "ranks were"), deck.parallel.pipeline, deck.parallel.pipeline);
}

Priced price_on_all_ranks(const Deck& deck, const HardwareOptions& hardware, const Communicator& world) {
  return jointly(world, [&] {
    check_ranks(deck, world);
    return price_valid(modelled_run(deck, hardware));
  });
}

std::optional<LateAction> late_action(const Deck& deck, const Schedule& schedule) {
  if (!deck.testing.delay_rank) return std::nullopt;
  return late_in_the_middle(schedule, Rank{*deck.testing.delay_rank}, deck.testing.rank_delay);
}

/// The late action, on the rank that is late.
std::optional<LateAction> late_here(const Deck& deck, const std::optional<LateAction>& late, int rank) {
  return deck.testing.delay_rank == rank ? late : std::nullopt;
}

Bytes checked_capacity(const Deck& deck, const std::string& deck_path, const HardwareOptions& hardware,
                       const PricedSchedule& schedule, const Communicator& world) {
  const Bytes capacity = device_capacity(deck, hardware);
  jointly(world, [&] {
    check_capacity(largest_of(schedule.plans()), capacity, capacity_name(deck, hardware),
                   modelled_advice(deck, deck_path, hardware));
  });
  return capacity;
}

}  // namespace

PricedRun::PricedRun(const Deck& deck, const std::string& deck_path, const HardwareOptions& hardware,
                     const Communicator& world)
    : deck_{deck},
      world_{&world},
      schedule_{price_on_all_ranks(deck, hardware, world), deck.device.time_scale},
      late_{late_action(deck, schedule_.schedule())},
      simulated_timeline_{schedule_.simulate(Rank{deck.testing.delay_rank.value_or(0)}, late_, simulated_)},
      lock_{deck, world},
      rank_{schedule_, world, checked_capacity(deck, deck_path, hardware, schedule_, world), deck.testing.delays,
            late_here(deck, late_, world.rank())},
      stop_request_{deck.output.directory, deck.training.time_limit.value_or(Seconds{0})},
      progress_{deck.training.steps, deck.output.progress} {
  refuse_other_hardware();
  start();
}

/// Every rank has simulated the step: other prices show in its seconds.
void PricedRun::refuse_other_hardware() const {
  const auto own = fmt::format("{} s", simulated_.step.value);
  const auto all = world_->all_gather(own);
  jointly(*world_, [&] {
    if (own == all.front()) return;
    fail(ExitCode::bad_input,
         "this rank has a step of {}, rank 0 one of {}: give all ranks the same hardware file and the same --set", own,
         all.front());
  });
}

void PricedRun::start() {
  const auto& shape = schedule_.schedule().shape;
  log::note("schedule {}: {}, {}, {}; simulated step {:.4f} s, times scaled by {}", schedule_.schedule().name,
            counted(shape.ranks, "rank"), counted(shape.micro_batches, "micro-batch", "micro-batches"),
            counted(shape.slices, "slice"), simulated_.step.value, deck_.device.time_scale);
  log::note("device: {}", rank_.device_description());
  start_run_directory(deck_, std::nullopt, *world_);
  if (world_->rank() == 0) metrics_.emplace(path_in_run(deck_, "metrics.csv"), 0);
  if (deck_.output.trace) {
    trace_.emplace(schedule_.schedule().name, RankPlace::of(world_->rank(), world_->size()), world_->size(),
                   deck_.output.trace_steps, common_start(*world_));
  }
  watchdog_ = end_job_without_progress(
      deck_.training.watchdog, [this] { return steps_.load() + rank_.executor().completed(); },
      [this] { return pending_in(fmt::format("step {}", steps_.load() + 1), rank_.executor().pending()); },
      before_end());
}

BeforeEnd PricedRun::before_end() const {
  return [this](ExitCode code, const std::string& reason) {
    PricedSummary ending;
    ending.version = program_version();
    ending.reason = fmt::format("rank {}: {}", world_->rank(), reason);
    ending.exit_code = static_cast<int>(code);
    ending.schedule = schedule_.schedule().name;
    leave_summary(deck_, world_->rank(), to_json(ending));
  };
}

ExitCode PricedRun::run() {
  while (steps_ < deck_.training.steps && !stop_reason_) {
    run_step(steps_ + 1);
    ++steps_;
  }
  finish();
  return has_stopped_early() ? ExitCode::stopped_early : ExitCode::finished;
}

bool PricedRun::has_stopped_early() const {
  return stop_reason_ && steps_ < deck_.training.steps;
}

void PricedRun::run_step(std::int64_t step) {
  or_end_job(
      *world_,
      [&] {
        rank_.executor().run(static_cast<std::int32_t>(step), trace_ ? trace_->next_step() : nullptr,
                             [this] { world_->barrier(); });
      },
      before_end());
  const auto report = exchange(
      *world_, {rank_.executor().compute_busy(), rank_.peak(), stop_request_.reason(rank_.executor().duration()), {}});
  const auto row = measure(step, report);
  stop_reason_ = report.stop;
  summary_.steps.push_back(Seconds{row.step_seconds});
  if (metrics_) metrics_->write(row);
  progress_.show(row);
}

StepMetrics PricedRun::measure(std::int64_t step, const StepReport& report) const {
  StepMetrics row;
  row.step = step;
  row.tokens = step * tokens_per_step(deck_);
  row.step_seconds = world_->maximum(rank_.executor().duration().value);
  row.tokens_per_second = static_cast<double>(tokens_per_step(deck_)) / row.step_seconds;
  row.bubble_fraction = 1 - report.compute_busy.value / (world_->size() * row.step_seconds);
  row.peak_device_bytes = report.peak_device_bytes.value;
  row.simulated_seconds = simulated_.step.value;
  return row;
}

void PricedRun::write_traces() {
  if (!trace_) return;
  const auto timeline = trace_->gather(*world_);
  jointly(*world_, [&] {
    if (world_->rank() != 0) return;
    write_trace(path_in_run(deck_, "trace.h5"), timeline);
    write_trace(path_in_run(deck_, "simulated.h5"), simulated_timeline_);
  });
}

void PricedRun::finish() {
  write_traces();
  summary_.version = program_version();
  summary_.reason = stop_reason_.value_or("finished");
  summary_.exit_code = static_cast<int>(has_stopped_early() ? ExitCode::stopped_early : ExitCode::finished);
  complete_summary();
  if (world_->rank() != 0) return;
  if (stop_reason_) stop_request_.remove_stop_file();
  write_text(path_in_run(deck_, "summary.json"), to_json(summary_));
  log::note("{}", to_text(summary_));
}

void PricedRun::complete_summary() {
  summary_.schedule = schedule_.schedule().name;
  summary_.time_scale = deck_.device.time_scale;
  summary_.simulated_step = simulated_.step;
  const auto peaks = world_->all_gather(rank_.peak().value);
  const auto computes = world_->all_gather(rank_.executor().compute_busy().value);
  for (const Rank rank : all<Rank>(world_->size())) {
    const auto place = static_cast<std::size_t>(rank.value());
    summary_.ranks.push_back(
        {schedule_.plans()[rank].peak, Bytes{peaks[place]}, simulated_.computes[place], Seconds{computes[place]}});
  }
}

}  // namespace penstock
