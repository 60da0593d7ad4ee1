// SPDX-License-Identifier: Apache-2.0
#include "execute/executor.hpp"

#include <algorithm>
#include <csignal>
#include <functional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "device/completion.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

Transport::Kind transport_kind(Op op) {
  switch (message_kind(op)) {
    case MessageKind::activations:
      return Transport::Kind::activations;
    case MessageKind::gradients:
      return Transport::Kind::gradients;
    case MessageKind::checkpoints:
      return Transport::Kind::checkpoints;
  }
  fail(ExitCode::internal, "{} is no message", name_of(op));
}

bool is_eviction(Op op) {
  return op == Op::evict_forward || op == Op::evict_backward;
}

}  // namespace

LaneQueues::LaneQueues(Device& device)
    : compute{device.make_queue("compute")},
      to_device{device.make_queue("to_device")},
      to_host{device.make_queue("to_host")},
      cpu{device.make_queue("cpu")} {}

Executor::Executor(const Schedule& schedule, const RankPlan& plan, const ExecutorResources& resources)
    : rank_{plan.rank},
      resources_{resources},
      list_{prepare(schedule, plan, resources)},
      events_(list_.size()),
      kill_lane_{resources.kill ? resources.device->make_queue("kill") : nullptr},
      persistent_bytes_{plan.persistent_bytes} {}

Executor::~Executor() {
  const auto settle = [](const Event& event) {
    try {
      event.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): reported by run()
    }
  };
  std::for_each(events_.begin(), events_.end(), settle);
  if (!tail_) return;
  for (const auto& [position, event] : tail_->events) settle(event);
}

void Executor::run(std::int32_t step, Timeline* trace, const std::function<void()>& before_start) {
  run_to_tail(step, trace, before_start);
  finish();
}

void Executor::run_to_tail(std::int32_t step, Timeline* trace, const std::function<void()>& before_start) {
  progress_ = std::make_shared<Progress>();
  progress_->in_tail = static_cast<std::size_t>(
      std::count_if(list_.begin(), list_.end(), [](const Prepared& prepared) { return prepared.is_tail; }));
  progress_->outstanding = list_.size() - progress_->in_tail;
  // The lanes start when all is issued. On a busy machine a lane that had run out of work would take turns with this
  // thread, one action each; and issuing to lanes that sleep wakes nobody.
  Completion all_issued;
  for (std::size_t position = 0; position < list_.size(); ++position) {
    auto& prepared = list_[position];
    take_and_free(prepared);
    std::vector<Event> after;
    after.reserve(prepared.after.size() + 1);
    if (prepared.after.empty()) after.push_back(all_issued.event());
    for (const auto needed : prepared.after) after.push_back(events_[static_cast<std::size_t>(needed)]);
    // The steps of the run before may still read what gradients are copied over.
    if (tail_ && prepared.action.op == Op::offload_gradients) after.push_back(tail_->events.back().second);
    if (is_killed_at(step, position)) after = {kill_process(position, std::move(after))};
    remember(position, issue(prepared, std::move(after)));
  }
  if (before_start) before_start();
  const Seconds started = now();
  all_issued.succeed(started);
  wait_for(*progress_, &Progress::outstanding);
  finish();  // the CPU lane has long been through the tail of the run before
  started_ = started;
  collect(step, trace);
  tail_ = tail_of_run(step, trace);
  if (tail_->events.empty()) tail_.reset();
}

void Executor::finish() {
  if (!tail_) return;
  wait_for(*tail_->progress, &Progress::in_tail);
  for (const auto& [position, event] : tail_->events) add_span(tail_->step, position, event, tail_->trace);
  tail_.reset();
}

Executor::Tail Executor::tail_of_run(std::int32_t step, Timeline* trace) const {
  Tail tail{step, trace, {}, progress_};
  for (std::size_t position = 0; position < list_.size(); ++position) {
    if (list_[position].is_tail) tail.events.emplace_back(position, events_[position]);
  }
  return tail;
}

void Executor::take_and_free(const Prepared& prepared) {
  for (const auto& planned : prepared.takes) {
    resources_.arena->take(planned.offset, planned.bytes,
                           fmt::format("{} of {}", name_of(planned.buffer.kind), to_text(prepared.action)));
  }
  // Free for later actions of the list, which wait for this one by the plan's edges.
  for (const auto& range : prepared.frees) resources_.arena->free(range.offset);
}

Event Executor::issue(Prepared& prepared, std::vector<Event> after) {
  auto& lanes = *resources_.lanes;
  auto* work = resources_.work;
  const auto& action = prepared.action;
  const auto compute = [work, &prepared] { prepared.waited = work->compute(prepared.action, prepared.buffers); };
  switch (prepared.lane) {
    case Lane::compute:
      // Nothing is moved: the memory is free once what used it is done.
      if (is_eviction(action.op)) return lanes.compute->submit(std::move(after), [] {});
      if (prepared.runs_early) return lanes.compute->submit_early(std::move(after), compute);
      return lanes.compute->submit(work->meet_partners(action, *lanes.compute, std::move(after)), compute);
    case Lane::cpu:
      return lanes.cpu->submit(std::move(after), [work, &prepared] { work->cpu(prepared.action); });
    case Lane::to_host:
      return work->copy(
          action, {resources_.device, lanes.to_host.get(), prepared.device_data, prepared.bytes, prepared.host_offset},
          std::move(after));
    case Lane::to_device:
      return work->copy(
          action,
          {resources_.device, lanes.to_device.get(), prepared.device_data, prepared.bytes, prepared.host_offset},
          std::move(after));
    case Lane::send:
      return resources_.transport->send(prepared.peer, transport_kind(action.op), std::move(after),
                                        prepared.device_data, prepared.bytes);
    case Lane::receive:
      return resources_.transport->receive(prepared.peer, transport_kind(action.op), std::move(after),
                                           prepared.device_data, prepared.bytes);
  }
  return {};
}

bool Executor::is_killed_at(std::int32_t step, std::size_t position) const {
  return resources_.kill && resources_.kill->step == step && resources_.kill->action == list_[position].action;
}

/// At the action's turn: behind what it waits for, and what its lane or channel has before it.
Event Executor::kill_process(std::size_t position, std::vector<Event> after) const {
  const Prepared& killed = list_[position];
  const bool is_message = killed.lane == Lane::send || killed.lane == Lane::receive;
  for (std::size_t i = 0; i < position; ++i) {
    const Prepared& earlier = list_[i];
    const bool is_in_channel = earlier.peer == killed.peer && earlier.action.op == killed.action.op;
    if (earlier.lane == killed.lane && (is_in_channel || !is_message)) after.push_back(events_[i]);
  }
  return kill_lane_->submit(std::move(after), [] { std::raise(SIGKILL); });
}

void Executor::remember(std::size_t position, const Event& event) {
  {
    const std::lock_guard lock{events_mutex_};
    events_[position] = event;
  }
  auto completed = [progress = progress_, count = completed_, state = std::weak_ptr{event.state()},
                    outstanding = list_[position].is_tail ? &Progress::in_tail : &Progress::outstanding] {
    const auto own = state.lock();
    count->fetch_add(1);
    const std::lock_guard lock{progress->mutex};
    const std::size_t left = --((*progress).*outstanding);
    if (own && own->failure() && !progress->failure) progress->failure = own->failure();
    // Woken once, and not by every action: run() would take the lanes' processors to look and to sleep again.
    if (left == 0 || progress->failure) progress->changed.notify_all();
  };
  if (event.state()) {
    event.state()->on_complete(std::move(completed));
  } else {
    completed();
  }
}

void Executor::wait_for(Progress& progress, std::size_t Progress::*outstanding) {
  std::unique_lock lock{progress.mutex};
  progress.changed.wait(lock, [&] { return progress.*outstanding == 0 || progress.failure; });
  if (progress.failure) std::rethrow_exception(progress.failure);
}

void Executor::collect(std::int32_t step, Timeline* trace) {
  compute_busy_ = {};
  duration_ = {};
  if (trace != nullptr) add_memory(step, *trace);
  for (std::size_t position = 0; position < list_.size(); ++position) {
    if (!list_[position].is_tail) add_span(step, position, events_[position], trace);
  }
}

void Executor::add_span(std::int32_t step, std::size_t position, const Event& event, Timeline* trace) {
  const Prepared& prepared = list_[position];
  const auto& state = event.state();
  if (!state) return;
  duration_ = std::max(duration_, state->finished() - started_);
  const Span span{step,
                  rank_.value(),
                  prepared.lane,
                  prepared.peer,
                  prepared.action,
                  state->started(),
                  state->finished(),
                  prepared.bytes,
                  prepared.waited};
  if (prepared.lane == Lane::compute) compute_busy_ += span.busy();
  if (trace != nullptr) trace->spans.push_back(span);
}

void Executor::add_memory(std::int32_t step, Timeline& trace) const {
  struct Change {
    Seconds time;
    Bytes bytes;
  };
  std::vector<Change> changes;
  for (std::size_t position = 0; position < list_.size(); ++position) {
    const auto& state = events_[position].state();
    if (!state) continue;
    for (const auto& taken : list_[position].takes) changes.push_back({state->started(), taken.bytes});
    for (const auto& freed : list_[position].frees) changes.push_back({state->finished(), Bytes{0} - freed.bytes});
  }
  // What is freed at a moment goes before what is taken then.
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return std::tie(a.time, a.bytes) < std::tie(b.time, b.bytes); });
  Bytes in_use = persistent_bytes_;
  for (const auto& change : changes) {
    in_use += change.bytes;
    trace.memory.push_back({step, rank_.value(), change.time, in_use});
  }
}

std::string Executor::pending(std::int32_t first_rank) const {
  constexpr std::size_t most = 6;
  const std::lock_guard lock{events_mutex_};
  std::string text;
  std::size_t count = 0;
  for (std::size_t position = 0; position < list_.size() && count < most; ++position) {
    if (events_[position].is_complete()) continue;
    const Prepared& prepared = list_[position];
    text += fmt::format("{}{} ({} lane{})", count == 0 ? "" : ", ", to_text(prepared.action), name_of(prepared.lane),
                        prepared.peer < 0 ? "" : fmt::format(", rank {}", first_rank + prepared.peer));
    ++count;
  }
  return text;
}

}  // namespace penstock
