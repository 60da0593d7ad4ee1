// SPDX-License-Identifier: Apache-2.0
#include "app/training_run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/agree.hpp"
#include "app/batches.hpp"
#include "app/commands.hpp"
#include "app/job.hpp"
#include "app/process_memory.hpp"
#include "app/run_directory.hpp"
#include "app/text_file.hpp"
#include "base/log.hpp"
#include "comm/environment.hpp"
#include "config/listing.hpp"
#include "data/tokenizer.hpp"
#include "model/parameters.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

RunPlan plan_on_all_ranks(const Deck& deck, const Communicator& world) {
  return jointly(world, [&] {
    Workers workers{deck.device.threads};
    auto plan = make_run_plan(run_shape(deck), *make_host_kernels(workers));
    check_fits(plan);
    return plan;
  });
}

/// Runs of one step: what fails on one rank alone ends the job at once, since the others wait for its messages.
template <class Work>
auto or_end_job(const Communicator& world, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    // All ranks decide alike on what is not finite.
    if (error.code() == ExitCode::not_finite) throw AgreedError{error.code(), error.what()};
    if (world.size() == 1) throw;
    log::error(error.what());
    MpiEnvironment::abort(error.code());
  }
}

std::string path_in(const Deck& deck, const char* name) {
  return (std::filesystem::path{deck.output.directory} / name).string();
}

/// Only once the run is accepted: a start that is refused must leave the files of the run before as they are.
void prepare_directory(const Deck& deck, const std::string& resume, const Communicator& world) {
  jointly(world, [&] {
    if (world.rank() != 0) return;
    const auto earlier = resume == "none" ? EarlierRun::move_away : EarlierRun::keep;
    const auto moved = prepare_run_directory(deck.output.directory, earlier);
    log::copy_to_file(path_in(deck, "run.log"));
    write_text(path_in(deck, "deck.yaml"), effective_deck(deck));
    if (!moved.empty()) log::note("the files of an earlier run are now in {}", moved);
  });
}

}  // namespace

TrainingRun::TrainingRun(const Deck& deck, const Communicator& world, const std::string& resume)
    : deck_{deck},
      world_{&world},
      data_{open_training_data(deck, world)},
      plan_{plan_on_all_ranks(deck, world)},
      rule_{deck.training.optimizer, deck.training.steps},
      state_{plan_, world, deck.device, deck.testing.delays},
      work_{{&plan_, state_.place().coordinate, &state_.kernels(), &state_.cpu_workers(), &state_.stages(),
             &state_.groups(), &rule_}},
      executor_{plan_.training.schedule, plan_.training.ranks[state_.place().coordinate], state_.resources(work_)},
      checkpointing_{deck_, plan_, state_, world, data_.train_summary.fingerprint},
      stop_request_{deck.output.directory, deck.training.time_limit.value_or(Seconds{0})},
      progress_{deck.training.steps, deck.output.progress} {
  if (data_.validation) validation_.emplace(plan_, state_, *data_.validation, deck.training.validation_batches);
  if (deck.output.sample.tokens > 0) generation_.emplace(plan_, state_);
  start(resume);
}

void TrainingRun::start(const std::string& resume) {
  log::note("{}", layout_text(plan_));
  log::note("device: {}; kernels: {}", state_.device_description(), state_.kernels().description());
  first_step_ = checkpointing_.start(resume, rule_) + 1;
  prepare_directory(deck_, resume, *world_);
  state_.upload_parameters();
  if (world_->rank() == 0) metrics_.emplace(path_in(deck_, "metrics.csv"), first_step_ - 1);
  world_->barrier();
  trace_start_ = now();
  if (deck_.output.trace) {
    trace_.emplace(plan_.training.schedule.name, state_.place(), plan_.shape.pipeline, deck_.output.trace_steps,
                   trace_start_);
  }
  watchdog_ = std::make_unique<Watchdog>(
      deck_.training.watchdog, [this] { return progress_count(); },
      [this](Seconds idle) {
        log::error(fmt::format("no progress for {:.0f} s (training.watchdog): waiting for {}", idle.value, pending()));
        MpiEnvironment::abort(ExitCode::no_progress);
      });
}

std::int64_t TrainingRun::progress_count() const {
  return moves_.load() + executor_.completed() + (validation_ ? validation_->completed() : 0) +
         (generation_ ? generation_->completed() : 0);
}

std::string TrainingRun::pending() const {
  const auto training = executor_.pending();
  return validation_ && training.starts_with("nothing") ? validation_->pending() : training;
}

ExitCode TrainingRun::run() {
  std::int64_t step = first_step_ - 1;
  if (step >= deck_.training.steps) {
    log::note("the checkpoint has {} steps and training.steps is {}: nothing is left to train", step,
              deck_.training.steps);
    return ExitCode::finished;  // the summary of the run that trained them stays
  }
  while (step < deck_.training.steps && !stop_reason_) {
    train_step(++step);
    ++moves_;
  }
  finish(step);
  return stop_reason_ && step < deck_.training.steps ? ExitCode::stopped_early : ExitCode::finished;
}

void TrainingRun::train_step(std::int64_t step) {
  const auto begin = now();
  const std::int64_t share = plan_.shape.global_batch / plan_.shape.replicas;
  const std::int64_t first = (step - 1) * plan_.shape.global_batch + state_.place().replica * share;
  const auto poisoned =
      std::count(deck_.testing.non_finite_steps.begin(), deck_.testing.non_finite_steps.end(), step) > 0;
  or_end_job(*world_, [&] {
    upload_batch(state_, work_, plan_.training, share,
                 [&](auto inputs, auto targets) { data_.train.read_batch(first, share, inputs, targets); });
  });
  const auto loaded = now();
  work_.begin_step(step, 1.0 / static_cast<double>(tokens_per_step(deck_)),
                   poisoned ? TrainingWork::Poison::yes : TrainingWork::Poison::no);
  or_end_job(*world_, [&] { executor_.run(static_cast<std::int32_t>(step), trace_ ? trace_->next_step() : nullptr); });
  const auto done = now();
  account_.add(Activity::data, loaded - begin);
  account_.add(Activity::compute, executor_.compute_busy());
  account_.add(Activity::waiting, done - loaded - executor_.compute_busy());

  RankReport own{executor_.compute_busy(), state_.peak_device_bytes(), stop_request_.reason(longest_step_), {}};
  if (work_.has_last_stage()) own.losses = work_.losses();
  const auto report = exchange(*world_, own);
  auto row = measure(step, done - begin, report);
  refuse_non_finite_loss(row);
  stop_reason_ = report.stop;
  trained_seconds_ += Seconds{row.step_seconds};
  last_loss_ = row.loss;
  account_.add(Activity::other, now() - done);

  row.validation_loss = validate_if_due(step);
  if (metrics_) metrics_->write(row);
  progress_.show(row);
  save_if_due(step);
  longest_step_ = std::max(longest_step_, now() - begin);
}

StepMetrics TrainingRun::measure(std::int64_t step, Seconds duration, const StepReport& report) const {
  StepMetrics row;
  const auto tokens = tokens_per_step(deck_);
  row.step = step;
  row.tokens = step * tokens;
  row.loss = ordered_sum(report.losses) / static_cast<double>(tokens);
  row.gradient_norm = work_.norm().norm;
  row.learning_rate = work_.update().learning_rate;
  row.step_seconds = world_->maximum(duration.value);
  row.tokens_per_second = static_cast<double>(tokens) / row.step_seconds;
  row.bubble_fraction = 1 - report.compute_busy.value / (world_->size() * row.step_seconds);
  row.peak_device_bytes = report.peak_device_bytes.value;
  row.skipped = work_.update().skipped;
  return row;
}

void TrainingRun::refuse_non_finite_loss(const StepMetrics& row) const {
  if (std::isfinite(row.loss) || deck_.training.optimizer.non_finite == NonFinite::skip) return;
  throw AgreedError{
      ExitCode::not_finite,
      fmt::format("step {}: the loss is {} on pipeline rank {}, though all gradients are finite; look at the "
                  "data of this step, or lower training.learning_rate",
                  row.step, row.loss, plan_.training.schedule.rank_of[plan_.training.schedule.last_stage()])};
}

std::optional<double> TrainingRun::validate_if_due(std::int64_t step) {
  const auto every = deck_.training.validate_every;
  if (!validation_ || every == 0 || (step % every != 0 && !is_last(step))) return std::nullopt;
  const auto begin = now();
  const double loss = or_end_job(*world_, [&] { return validation_->loss(*world_); });
  account_.add(Activity::validation, now() - begin);
  summary_.validation_loss = loss;
  return loss;
}

void TrainingRun::save_if_due(std::int64_t step) {
  const auto every = deck_.output.checkpoint.checkpoint_every;
  const bool due = every > 0 && (step % every == 0 || is_last(step));
  if (!due && !stop_reason_) return;
  const auto begin = now();
  checkpointing_.save(step, rule_);
  if (stop_reason_ || is_last(step)) checkpointing_.wait();
  account_.add(Activity::checkpoint, now() - begin);
  ++moves_;
}

std::optional<std::string> TrainingRun::sample_text() {
  if (!generation_ || stop_reason_) return std::nullopt;
  const auto& sample = deck_.output.sample;
  const auto tokenizer = make_tokenizer("bytes");
  const auto tokens = or_end_job(*world_, [&] {
    return generation_->extend(*world_, tokenizer->encode(sample.prompt), sample.tokens, tokenizer->end_of_text(),
                               {sample.temperature, deck_.training.seed});
  });
  return tokenizer->decode(tokens);
}

void TrainingRun::finish(std::int64_t completed_steps) {
  checkpointing_.wait();
  if (trace_) {
    const auto timeline = trace_->gather(*world_);
    checkpointing_.on_io_thread([&] {
      if (world_->rank() == 0 && !timeline.spans.empty()) write_trace(path_in(deck_, "trace.h5"), timeline);
    });
  }
  summary_.sample = sample_text();
  summary_.sample_prompt = deck_.output.sample.prompt;
  summary_.version = program_version();
  summary_.reason = stop_reason_.value_or("finished");
  summary_.exit_code = static_cast<int>(stop_reason_ && completed_steps < deck_.training.steps ? ExitCode::stopped_early
                                                                                               : ExitCode::finished);
  complete_summary(summary_, completed_steps);
  if (world_->rank() != 0) return;
  if (stop_reason_) stop_request_.remove_stop_file();
  write_text(path_in(deck_, "summary.json"), to_json(summary_));
  log::note("{}", to_text(summary_));
}

void TrainingRun::complete_summary(RunSummary& summary, std::int64_t completed_steps) {
  summary.first_step = first_step_;
  summary.completed_steps = completed_steps;
  summary.tokens = completed_steps * tokens_per_step(deck_);
  summary.seconds = trained_seconds_;
  summary.tokens_per_second =
      trained_seconds_.value > 0
          ? static_cast<double>((completed_steps - first_step_ + 1) * tokens_per_step(deck_)) / trained_seconds_.value
          : 0;
  summary.training_loss = last_loss_;
  summary.entropies = data_.entropies;
  summary.times = account_.over_ranks(*world_);
  const auto host = planned_host_bytes(plan_, world_->rank());
  const auto planned = plan_.planned_device_bytes(state_.place().coordinate);
  const auto all = [this](Bytes bytes) { return world_->all_gather(bytes.value); };
  const auto device = all(planned);
  const auto peak = all(state_.peak_device_bytes());
  const auto host_planned = all(host.states + host.snapshot);
  const auto resident = all(peak_resident_set());
  for (std::size_t rank = 0; rank < device.size(); ++rank) {
    summary.ranks.push_back({Bytes{device[rank]}, Bytes{peak[rank]}, Bytes{host_planned[rank]}, Bytes{resident[rank]}});
  }
}

}  // namespace penstock
