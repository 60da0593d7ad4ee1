// SPDX-License-Identifier: Apache-2.0
#include "app/training_run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include "app/batches.hpp"
#include "app/commands.hpp"
#include "app/end_job.hpp"
#include "app/fit_advice.hpp"
#include "app/host_memory.hpp"
#include "app/job.hpp"
#include "app/kill_place.hpp"
#include "app/process_memory.hpp"
#include "app/run_directory.hpp"
#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "config/listing.hpp"
#include "model/parameters.hpp"
#include "schedule/text.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

/// Ranks that run different lists would wait for each other for ever.
void refuse_other_lists(const Schedule& schedule, const Communicator& world) {
  const auto own = static_cast<std::int64_t>(std::hash<std::string>{}(write_schedule_csv(schedule)));
  const auto all = world.all_gather(own);
  jointly(world, [&] {
    if (own == all.front()) return;
    fail(ExitCode::bad_input,
         "this rank has another schedule than rank 0: let schedule.file and hardware name the same files on all ranks");
  });
}

/// With the place of testing.kill, of which all ranks have found that there is one.
ExecutorResources killed_at(const std::optional<KillPlace>& place, ExecutorResources resources) {
  resources.kill = place;
  return resources;
}

RunPlan plan_on_all_ranks(const Deck& deck, const std::string& deck_path, const Communicator& world) {
  auto plan = jointly(world, [&] {
    Workers workers{deck.device.threads};
    auto own = make_run_plan(run_shape(deck, deck_path), *make_host_kernels(workers));
    check_fits(own, device_advice(deck, deck_path));
    kill_place(deck, own, world.rank());
    return own;
  });
  refuse_other_lists(plan.training.schedule, world);
  check_own_node(plan, deck, deck_path, world);
  return plan;
}

/// The completed steps of the run in the folder, if it is the one that goes on: a checkpoint of another folder begins a
/// run of its own.
std::optional<std::int64_t> continued_steps(const Deck& deck, const std::string& resume, std::int64_t completed) {
  if (resume == "none" || (resume != "auto" && !is_checkpoint_of_run(deck, resume))) return std::nullopt;
  return completed;
}

}  // namespace

template <class Work>
auto TrainingRun::in_step(Work&& work) const {
  return or_end_job(*world_, std::forward<Work>(work), before_end());
}

BeforeEnd TrainingRun::before_end() const {
  return [this](ExitCode code, const std::string& reason) {
    penstock::leave_summary(deck_, world_->rank(),
                            to_json(ending(code, fmt::format("rank {}: {}", world_->rank(), reason))));
  };
}

TrainingRun::TrainingRun(const Deck& deck, const std::string& deck_path, const Communicator& world,
                         const std::string& resume)
    : deck_{deck},
      world_{&world},
      data_{open_training_data(deck, world)},
      plan_{plan_on_all_ranks(deck, deck_path, world)},
      lock_{deck, world},
      rule_{deck.training.optimizer, deck.training.steps},
      state_{plan_, world, deck.device, deck.testing.delays, store_options(deck)},
      work_{{&plan_, state_.place().coordinate, &state_.kernels(), &state_.cpu_workers(), &state_.stages(),
             &state_.parameter_fetch(), &state_.groups(), &rule_, state_.transport(), &state_.vocabulary_peers(),
             [this] { return packed(own_report()); }}},
      executor_{plan_.training.schedule, plan_.training.ranks[state_.place().coordinate],
                killed_at(kill_place(deck, plan_, world.rank()), state_.resources(work_))},
      checkpointing_{deck_, plan_, state_, world, data_.train_summary.fingerprint},
      stop_request_{deck.output.directory, deck.training.time_limit.value_or(Seconds{0})},
      progress_{deck.training.steps, deck.output.progress} {
  if (data_.validation) validation_.emplace(plan_, state_, *data_.validation, deck.training.validation_batches);
  if (deck.output.sample.tokens > 0) prepare_sample();
  start(resume);
}

/// A prompt that cannot be used is refused before the training, not after it.
void TrainingRun::prepare_sample() {
  jointly(*world_, [&] {
    tokenizer_ = make_tokenizer(deck_.data.tokenizer);
    prompt_ =
        prompt_tokens(*tokenizer_, deck_.output.sample.prompt, plan_.shape.model.vocabulary, "output.sample.prompt");
  });
  generation_.emplace(plan_, state_);
}

void TrainingRun::start(const std::string& resume) {
  log::note("{}", layout_text(plan_));
  log::note("device: {}; kernels: {}", state_.device_description(), state_.kernels().description());
  completed_steps_ = checkpointing_.start(resume, rule_);
  first_step_ = completed_steps_ + 1;
  start_run_directory(deck_, continued_steps(deck_, resume, completed_steps_), *world_);
  state_.upload_parameters();
  state_.publish_parameters(completed_steps_);
  if (world_->rank() == 0) metrics_.emplace(path_in_run(deck_, "metrics.csv"), first_step_ - 1);
  trace_start_ = common_start(*world_);
  if (deck_.output.trace) {
    trace_.emplace(plan_.training.schedule.name, state_.place(), plan_.shape.pipeline, deck_.output.trace_steps,
                   trace_start_);
  }
  watchdog_ = end_job_without_progress(
      deck_.training.watchdog, [this] { return progress_count(); }, [this] { return pending(); }, before_end());
}

std::int64_t TrainingRun::progress_count() const {
  return moves_.load() + executor_.completed() + (validation_ ? validation_->completed() : 0) +
         (generation_ ? generation_->completed() : 0);
}

std::string TrainingRun::pending() const {
  const std::int64_t completed = completed_steps_;
  const std::int32_t first_rank = state_.place().first_rank(plan_.shape.pipeline);
  switch (phase_.load()) {
    case Phase::step:
      return pending_in(fmt::format("step {}", completed + 1), executor_.pending(first_rank));
    case Phase::validation:
      return pending_in(fmt::format("the validation after step {}", completed), validation_->pending(first_rank));
    case Phase::checkpoint:
      return pending_in(fmt::format("the checkpoint of step {}", completed), executor_.pending(first_rank));
    case Phase::sample:
      return pending_in("the sample of text", generation_->pending(first_rank));
  }
  return {};
}

ExitCode TrainingRun::run() {
  if (is_complete()) {
    log::note("the checkpoint has {} and training.steps is {}: nothing is left to train",
              counted(completed_steps_, "step"), deck_.training.steps);
    return ExitCode::finished;  // the summary of the run that trained them stays
  }
  try {
    while (!is_complete() && !stop_reason_) {
      train_step(completed_steps_ + 1);
      ++moves_;
    }
    finish();
  } catch (const AgreedError& error) {
    leave_summary(error);
    throw;
  }
  return is_complete() ? ExitCode::finished : ExitCode::stopped_early;
}

void TrainingRun::train_step(std::int64_t step) {
  const auto begin = now();
  const std::int64_t share = plan_.shape.global_batch / plan_.shape.replicas;
  const std::int64_t first = checkpointing_.samples_after(step - 1) + state_.place().replica * share;
  const auto poisoned =
      std::count(deck_.testing.non_finite_steps.begin(), deck_.testing.non_finite_steps.end(), step) > 0;
  in_step([&] {
    upload_batch(state_, work_, plan_.training, share,
                 [&](auto inputs, auto targets) { data_.train.read_batch(first, share, inputs, targets); });
  });
  const auto loaded = now();
  work_.begin_step(step, 1.0 / static_cast<double>(tokens_per_step(deck_)),
                   poisoned ? TrainingWork::Poison::yes : TrainingWork::Poison::no);
  in_step([&] {
    executor_.run_to_tail(static_cast<std::int32_t>(step), trace_ ? trace_->next_step() : nullptr);
    work_.end_step();
  });
  state_.expect_parameters(step);
  const auto done = now();
  account_.add(Activity::data, loaded - begin);
  account_.add(Activity::compute, executor_.compute_busy());
  account_.add(Activity::waiting, done - loaded - executor_.compute_busy());

  const auto report = joined(work_.reports());
  auto row = measure(step, done - begin, report);
  refuse_non_finite_loss(row);
  completed_steps_ = step;
  stop_reason_ = report.stop;
  trained_seconds_ += Seconds{row.step_seconds};
  last_loss_ = row.loss;
  account_.add(Activity::other, now() - done);

  row.validation_loss = validate_if_due(step);
  write_metrics(row);
  progress_.show(row);
  save_if_due(step);
  longest_step_ = std::max(longest_step_, now() - begin);
}

RankReport TrainingRun::own_report() const {
  RankReport own{work_.compute_busy(), state_.peak_device_bytes(), stop_request_.reason(longest_step_), {}, {}};
  if (work_.has_losses()) own.losses = work_.losses();
  own.since_last = metrics_outcome_;
  return own;
}

void TrainingRun::write_metrics(const StepMetrics& row) {
  if (!metrics_ || metrics_outcome_.code != ExitCode::finished) return;
  try {
    metrics_->write(row);
  } catch (const Error& error) {
    metrics_outcome_ = {error.code(), error.what()};
  }
}

StepMetrics TrainingRun::measure(std::int64_t step, Seconds duration, const StepReport& report) const {
  StepMetrics row;
  const auto tokens = tokens_per_step(deck_);
  row.step = step;
  row.tokens = checkpointing_.tokens_after(step);
  row.loss = ordered_sum(report.losses) / static_cast<double>(tokens);
  row.gradient_norm = work_.norm().norm;
  row.learning_rate = work_.update().learning_rate;
  row.step_seconds = duration.value;
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
  phase_ = Phase::validation;
  const double loss = in_step([&] { return validation_->loss(*world_); });
  phase_ = Phase::step;
  account_.add(Activity::validation, now() - begin);
  summary_.validation_loss = loss;
  return loss;
}

void TrainingRun::save_if_due(std::int64_t step) {
  const auto every = deck_.output.checkpoint.checkpoint_every;
  const bool due = every > 0 && (step % every == 0 || is_last(step));
  if (!due && !stop_reason_) return;
  const auto begin = now();
  phase_ = Phase::checkpoint;
  in_step([&] { executor_.finish(); });
  checkpointing_.save(step, rule_, time_to_write());
  if (stop_reason_ || is_last(step)) checkpointing_.wait();
  phase_ = Phase::step;
  account_.add(Activity::checkpoint, now() - begin);
  ++moves_;
}

/// Three quarters of the time to the next checkpoint: the rest is for the disk, so that the next one need not wait.
Seconds TrainingRun::time_to_write() const {
  const auto steps = completed_steps_ - first_step_ + 1;
  if (steps < 1) return Seconds{0};
  return Seconds{0.75 * deck_.output.checkpoint.checkpoint_every * trained_seconds_.value / static_cast<double>(steps)};
}

std::optional<std::string> TrainingRun::sample_text() {
  if (!generation_ || stop_reason_) return std::nullopt;
  const auto& sample = deck_.output.sample;
  phase_ = Phase::sample;
  const auto tokens = in_step([&] {
    return generation_->extend(*world_, prompt_, sample.tokens, tokenizer_->end_of_text(),
                               {sample.temperature, deck_.training.seed});
  });
  return tokenizer_->decode(tokens);
}

void TrainingRun::finish() {
  in_step([&] { executor_.finish(); });
  agree(*world_, metrics_outcome_);
  checkpointing_.wait();
  if (trace_) {
    const auto timeline = trace_->gather(*world_);
    jointly(*world_, [&] {
      if (world_->rank() != 0 || timeline.spans.empty()) return;
      checkpointing_.on_io_thread([&] { write_trace(path_in_run(deck_, "trace.h5"), timeline); });
    });
  }
  summary_.sample = sample_text();
  if (summary_.sample) summary_.sample_prompt = tokenizer_->decode(prompt_);
  static_cast<RunEnding&>(summary_) =
      ending(is_complete() ? ExitCode::finished : ExitCode::stopped_early, stop_reason_.value_or("finished"));
  complete_summary();
  jointly(*world_, [&] {
    if (world_->rank() != 0) return;
    if (stop_reason_) stop_request_.remove_stop_file();
    write_text(path_in_run(deck_, "summary.json"), to_json(summary_));
  });
  if (world_->rank() == 0) log::note("{}", to_text(summary_));
}

void TrainingRun::leave_summary(const Error& error) {
  try {
    checkpointing_.wait();
  } catch (const AgreedError& other) {
    if (world_->rank() == 0) log::warning("{}", other.what());
  }
  static_cast<RunEnding&>(summary_) = ending(error.code(), error.what());
  complete_summary();
  if (world_->rank() != 0) return;
  try {
    write_text(path_in_run(deck_, "summary.json"), to_json(summary_));
  } catch (const Error& other) {
    log::warning("{}", other.what());
  }
}

RunEnding TrainingRun::ending(ExitCode code, std::string reason) const {
  const std::int64_t completed = completed_steps_;
  return {program_version(), std::move(reason), static_cast<int>(code),
          first_step_,       completed,         checkpointing_.tokens_after(completed)};
}

void TrainingRun::complete_summary() {
  auto& summary = summary_;
  const std::int64_t own_steps = summary.completed_steps - first_step_ + 1;
  summary.seconds = trained_seconds_;
  summary.tokens_per_second =
      trained_seconds_.value > 0 ? static_cast<double>(own_steps * tokens_per_step(deck_)) / trained_seconds_.value : 0;
  summary.training_loss = last_loss_;
  summary.entropies = data_.entropies;
  summary.times = account_.over_ranks(*world_);
  const auto host = planned_host_bytes(plan_, world_->rank());
  const auto planned = plan_.planned_device_bytes(state_.place().coordinate);
  const auto all = [this](Bytes bytes) { return world_->all_gather(bytes.value); };
  const auto device = all(planned);
  const auto peak = all(state_.peak_device_bytes());
  const auto host_planned = all(host.of_training());
  const auto resident = all(peak_resident_set());
  for (std::size_t rank = 0; rank < device.size(); ++rank) {
    summary.ranks.push_back({Bytes{device[rank]}, Bytes{peak[rank]}, Bytes{host_planned[rank]}, Bytes{resident[rank]}});
  }
}

}  // namespace penstock
