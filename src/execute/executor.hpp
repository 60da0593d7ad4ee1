// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "comm/transport.hpp"
#include "device/arena.hpp"
#include "device/device.hpp"
#include "execute/stage_work.hpp"
#include "memory/plan.hpp"
#include "schedule/schedule.hpp"
#include "stage/stage.hpp"
#include "trace/timeline.hpp"

namespace penstock {

/// The lanes of a rank: one queue each, shared by the executors of all its schedules.
struct LaneQueues {
  explicit LaneQueues(Device& device);
  std::unique_ptr<Queue> compute;
  std::unique_ptr<Queue> to_device;
  std::unique_ptr<Queue> to_host;
  std::unique_ptr<Queue> cpu;
};

/// Before which action of which step a rank kills its own process, as a crash would: for tests.
struct KillPlace {
  std::int32_t step = 0;
  Action action;
};

/// What an executor works with; everything outlives it.
struct ExecutorResources {
  LaneQueues* lanes = nullptr;
  Device* device = nullptr;
  Arena* arena = nullptr;            ///< holds the persistent buffers already
  std::byte* device_base = nullptr;  ///< the address of offset 0
  Transport* transport = nullptr;    ///< may be null when the schedule has one rank
  StageWork* work = nullptr;
  std::optional<KillPlace> kill = {};
};

/// Runs one rank's list of one schedule, step after step.
///
/// The list is issued in order from the calling thread: each action takes its planned buffers at its place, is queued
/// on its lane behind the events of what it needs (semantics) and of what freed its memory (plan), and frees what it
/// frees. Nothing here decides order, but that the place of a W which may run early is its latest: the lane runs it
/// when it would else wait. The lanes start once all is issued. Addresses are fixed by the plan, so everything but the
/// events is prepared once.
class Executor {
 public:
  Executor(const Schedule& schedule, const RankPlan& plan, const ExecutorResources& resources);

  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// One step; returns when all of the rank's actions are complete. Rethrows the first failure of an action at once,
  /// without waiting for messages that other ranks may never send: with peers the job must then be ended; alone, the
  /// destructor waits for what is queued. `trace`: append the step's spans and memory samples (times on the machine's
  /// clock; may be null). `before_start`, unless empty, is called once all is issued and before anything starts: where
  /// ranks wait for each other to start together.
  void run(std::int32_t step, Timeline* trace, const std::function<void()>& before_start = {});

  /// The same, but returns when all actions are complete save those of the list's tail: what the CPU lane does behind
  /// VALIDATE, as far as nothing else of the list waits for it (STEPs whose results the fetches of the next step wait
  /// for). The next run may begin meanwhile; it completes the tail's spans in `trace`, which must live until then, as
  /// does finish().
  void run_to_tail(std::int32_t step, Timeline* trace, const std::function<void()>& before_start = {});
  /// Waits for a tail that is under way. Rethrows the first failure.
  void finish();

  /// Seconds that the compute lane was busy in the last run. What its actions waited for other ranks is not among them.
  Seconds compute_busy() const { return compute_busy_; }
  /// From the start of the last run, behind `before_start`, to the end of the rank's last action (of a tail: once it is
  /// finished).
  Seconds duration() const { return duration_; }
  /// Actions completed since construction: the watchdog's sign of progress. Any thread.
  std::int64_t completed() const { return completed_->load(); }
  /// The first actions that are not complete, for the watchdog's report: "1RECV_B3 (receive lane, rank 2), 1B3 (compute
  /// lane), ...", messages with the rank of the job at their other end; empty if all are. `first_rank`: the job's rank
  /// that is the first of this pipeline. Any thread, while running.
  std::string pending(std::int32_t first_rank = 0) const;

 private:
  struct Prepared {
    Action action;
    Lane lane = Lane::compute;
    bool runs_early = false;
    std::vector<std::int32_t> after;  // list positions
    std::vector<PlannedBuffer> takes;
    std::vector<PlannedBuffer> frees;
    StageBuffers buffers;
    std::byte* device_data = nullptr;  // of a message or copy
    Bytes bytes{0};
    Bytes host_offset{0};
    std::int32_t peer = -1;
    bool is_tail = false;
    Seconds waited{0};  // inside the action, in the current run; written by the compute lane
  };
  class Preparation;
  /// Resolves, once, the addresses and predecessors of every action of the list.
  static std::vector<Prepared> prepare(const Schedule& schedule, const RankPlan& plan,
                                       const ExecutorResources& resources);
  /// Of one run: told by the completing threads; shared with their callbacks, which may outlive a failed run.
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t outstanding = 0;  // actions before the tail
    std::size_t in_tail = 0;
    std::exception_ptr failure;
  };
  /// The actions of a run that go on behind it.
  struct Tail {
    std::int32_t step = 0;
    Timeline* trace = nullptr;
    std::vector<std::pair<std::size_t, Event>> events;  // by list position
    std::shared_ptr<Progress> progress;
  };

  void take_and_free(const Prepared& prepared);
  Event issue(Prepared& prepared, std::vector<Event> after);
  bool is_killed_at(std::int32_t step, std::size_t position) const;
  Event kill_process(std::size_t position, std::vector<Event> after) const;
  void remember(std::size_t position, const Event& event);
  static void wait_for(Progress& progress, std::size_t Progress::*outstanding);
  void collect(std::int32_t step, Timeline* trace);
  void add_span(std::int32_t step, std::size_t position, const Event& event, Timeline* trace);
  Tail tail_of_run(std::int32_t step, Timeline* trace) const;
  /// A sample for each buffer taken (when its action started) or freed (when its action ended).
  void add_memory(std::int32_t step, Timeline& trace) const;

  Rank rank_;
  ExecutorResources resources_;
  std::vector<Prepared> list_;
  mutable std::mutex events_mutex_;
  std::vector<Event> events_;         // by list position, of the current run
  std::unique_ptr<Queue> kill_lane_;  // where there is a place to kill at
  Seconds compute_busy_{0};
  Seconds started_{0};
  Seconds duration_{0};
  Bytes persistent_bytes_{0};
  std::shared_ptr<std::atomic<std::int64_t>> completed_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();  // of the current run
  std::optional<Tail> tail_;                                           // of the run before
};

}  // namespace penstock
