// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_queue.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <pthread.h>

#include "base/random.hpp"

namespace penstock {
namespace {

/// Linux keeps 15 characters of a thread's name.
void name_this_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace

HostQueue::HostQueue(const std::string& name, std::uint64_t number, DelayOptions delays)
    : number_{number}, delays_{delays}, thread_{[this, name] {
        name_this_thread(name);
        run();
      }} {}

HostQueue::~HostQueue() {
  {
    const std::lock_guard lock{mutex_};
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Event HostQueue::submit(std::vector<Event> after, std::function<void()> work) {
  return submit(Piece{std::move(after), std::move(work), Turn::own, {}});
}

Event HostQueue::submit_early(std::vector<Event> after, std::function<void()> work) {
  return submit(Piece{std::move(after), std::move(work), Turn::own_or_earlier, {}});
}

Event HostQueue::submit(Piece piece) {
  const auto shared = std::make_shared<Piece>(std::move(piece));
  Event event = shared->completion.event();
  {
    const std::lock_guard lock{mutex_};
    waiting_.push_back(shared);
    if (shared->turn == Turn::own_or_earlier) early_.push_back(shared);
  }
  changed_.notify_one();
  return event;
}

void HostQueue::run() {
  while (const auto piece = next_piece()) run_piece(*piece);
}

/// Null when the queue is closing and nothing is left.
HostQueue::PiecePointer HostQueue::next_piece() {
  std::unique_lock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return nullptr;
    PiecePointer piece = std::move(waiting_.front());
    waiting_.pop_front();
    if (piece->turn == Turn::own) return piece;
    // The first that may run early, or one that has done so already.
    if (early_.empty() || early_.front() != piece) continue;
    early_.pop_front();
    return piece;
  }
}

/// The first that may run early, if nothing keeps it from running now; else null.
HostQueue::PiecePointer HostQueue::next_early_piece() {
  const std::lock_guard lock{mutex_};
  if (early_.empty()) return nullptr;
  const auto& after = early_.front()->after;
  if (!std::all_of(after.begin(), after.end(), [](const Event& event) { return event.is_complete(); })) return nullptr;
  PiecePointer piece = std::move(early_.front());
  early_.pop_front();
  return piece;
}

void HostQueue::run_piece(Piece& piece) {
  Seconds started = now();
  if (!failure_) {
    try {
      for (const auto& event : piece.after) wait_for(event, piece.turn);
      delay();
      started = now();
      piece.work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  // What the work holds is released before anybody learns that it is complete.
  piece.work = nullptr;
  if (failure_) {
    piece.completion.fail(failure_, started);
  } else {
    piece.completion.succeed(started);
  }
}

/// A piece that may itself run early is not overtaken: those keep their order.
void HostQueue::wait_for(const Event& event, Turn turn) {
  while (turn == Turn::own && !event.is_complete()) {
    const auto early = next_early_piece();
    if (!early) break;
    run_piece(*early);
    if (failure_) std::rethrow_exception(failure_);
  }
  event.wait();
}

void HostQueue::delay() {
  if (delays_.longest.value <= 0) return;
  const CounterRandom random{delays_.seed, RandomPurpose::delays, number_};
  std::this_thread::sleep_for(std::chrono::duration<double>{delays_.longest.value * random.uniform(delayed_pieces_++)});
}

}  // namespace penstock
