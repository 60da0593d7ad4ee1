// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpointing.hpp"
#include "app/end_job.hpp"
#include "app/generation.hpp"
#include "app/metrics.hpp"
#include "app/progress.hpp"
#include "app/run_lock.hpp"
#include "app/step_exchange.hpp"
#include "app/stop_request.hpp"
#include "app/summary.hpp"
#include "app/time_account.hpp"
#include "app/trace_collector.hpp"
#include "app/training_data.hpp"
#include "app/validation.hpp"
#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "data/tokenizer.hpp"
#include "execute/executor.hpp"
#include "execute/rank_state.hpp"
#include "execute/run_plan.hpp"
#include "execute/training_work.hpp"
#include "optimizer/update.hpp"

namespace penstock {

/// One `penstock train` on one rank, from the deck to the summary. All functions are collective over `world`.
class TrainingRun {
 public:
  /// Plans, opens the data, reserves memory, and starts from the initial weights or from a checkpoint. `resume`:
  /// "auto", "none" or a file. @throws AgreedError for what is wrong with deck, data, memory or checkpoint.
  TrainingRun(const Deck& deck, const std::string& deck_path, const Communicator& world, const std::string& resume);

  /// Trains to the last step or to a stop request. Returns finished or stopped_early.
  ExitCode run();

 private:
  /// What the main thread is at, for the watchdog's report.
  enum class Phase : std::uint8_t { step, validation, checkpoint, sample };

  void prepare_sample();
  void start(const std::string& resume);
  /// Part of a step: what one rank alone cannot do ends the job for all (or_end_job).
  template <class Work>
  auto in_step(Work&& work) const;
  /// Leaves a short summary.
  BeforeEnd before_end() const;
  void train_step(std::int64_t step);
  /// What this rank tells the others at VALIDATE. On the CPU lane.
  RankReport own_report() const;
  StepMetrics measure(std::int64_t step, Seconds duration, const StepReport& report) const;
  void write_metrics(const StepMetrics& row);
  std::optional<double> validate_if_due(std::int64_t step);
  void save_if_due(std::int64_t step);
  void refuse_non_finite_loss(const StepMetrics& row) const;
  std::optional<std::string> sample_text();
  Seconds time_to_write() const;
  void finish();
  /// The summary of a run that ends with an error which all ranks know of.
  void leave_summary(const Error& error);
  void complete_summary();
  RunEnding ending(ExitCode code, std::string reason) const;
  bool is_last(std::int64_t step) const { return step == deck_.training.steps; }
  bool is_complete() const { return completed_steps_ >= deck_.training.steps; }
  std::string pending() const;
  std::int64_t progress_count() const;

  Deck deck_;
  const Communicator* world_;
  TrainingData data_;
  RunPlan plan_;
  RunLock lock_;  // before what reads or writes the run's folder
  UpdateRule rule_;
  RankState state_;
  TrainingWork work_;
  Executor executor_;
  std::optional<Validation> validation_;
  std::optional<Generation> generation_;
  std::unique_ptr<const Tokenizer> tokenizer_;  // of the sample, where one is asked for
  std::vector<std::int32_t> prompt_;
  Checkpointing checkpointing_;
  StopRequest stop_request_;
  Seconds trace_start_{0};
  std::optional<TraceCollector> trace_;
  std::optional<MetricsFile> metrics_;  // on the first rank
  Outcome metrics_outcome_;             // what it met while writing them; all ranks learn it at the next VALIDATE
  TimeAccount account_;
  Progress progress_;
  RunSummary summary_;
  std::int64_t first_step_ = 1;
  std::atomic<std::int64_t> completed_steps_{0};
  std::optional<std::string> stop_reason_;
  Seconds longest_step_{0};
  Seconds trained_seconds_{0};
  double last_loss_ = 0;
  std::atomic<Phase> phase_{Phase::step};
  std::atomic<std::int64_t> moves_{0};  // what the watchdog sees besides the executors
  std::unique_ptr<Watchdog> watchdog_;  // last: it looks at everything above
};

}  // namespace penstock
