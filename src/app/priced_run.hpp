// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "app/end_job.hpp"
#include "app/metrics.hpp"
#include "app/priced_rank.hpp"
#include "app/priced_summary.hpp"
#include "app/progress.hpp"
#include "app/run_lock.hpp"
#include "app/step_exchange.hpp"
#include "app/stop_request.hpp"
#include "app/trace_collector.hpp"
#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "cost/hardware.hpp"
#include "execute/watchdog.hpp"

namespace penstock {

/// One `penstock train` with `device: {kind: priced}` on one rank: the schedule that the deck asks for runs, its
/// actions waiting for what they would take on the hardware; no data, weights or checkpoints. All functions are
/// collective over `world`.
///
/// One replica runs, since all are alike: `world` has parallel.pipeline ranks, and each of them stands for tensor x
/// context devices.
class PricedRun {
 public:
  /// @throws AgreedError for what is wrong with deck, schedule or memory, or if the ranks count with other hardware
  PricedRun(const Deck& deck, const std::string& deck_path, const HardwareOptions& hardware, const Communicator& world);

  /// Runs training.steps steps, or up to a stop request. Returns finished or stopped_early.
  ExitCode run();

 private:
  void start();
  BeforeEnd before_end() const;
  void refuse_other_hardware() const;
  void run_step(std::int64_t step);
  StepMetrics measure(std::int64_t step, const StepReport& report) const;
  void finish();
  void write_traces();
  void complete_summary();
  bool has_stopped_early() const;

  Deck deck_;
  const Communicator* world_;
  PricedSchedule schedule_;
  std::optional<LateAction> late_;  ///< on testing.delay_rank
  StepTimes simulated_;
  Timeline simulated_timeline_;
  RunLock lock_;  // before what writes the run's folder
  PricedRank rank_;
  StopRequest stop_request_;
  std::optional<TraceCollector> trace_;
  std::optional<MetricsFile> metrics_;  // on the first rank
  Progress progress_;
  PricedSummary summary_;
  std::optional<std::string> stop_reason_;
  std::atomic<std::int64_t> steps_{0};  // what the watchdog sees besides the executor
  std::unique_ptr<Watchdog> watchdog_;  // last: it looks at everything above
};

}  // namespace penstock
