// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_queue.hpp"

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
  Piece piece{std::move(after), std::move(work), Completion{}};
  Event event = piece.completion.event();
  {
    const std::lock_guard lock{mutex_};
    waiting_.push_back(std::move(piece));
  }
  changed_.notify_one();
  return event;
}

void HostQueue::run() {
  while (auto piece = next_piece()) run_piece(std::move(*piece));
}

/// Empty when the queue is closing and nothing is left.
std::optional<HostQueue::Piece> HostQueue::next_piece() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
  if (waiting_.empty()) return std::nullopt;
  std::optional<Piece> piece{std::move(waiting_.front())};
  waiting_.pop_front();
  return piece;
}

void HostQueue::run_piece(Piece piece) {
  Seconds started = now();
  if (!failure_) {
    try {
      for (const auto& event : piece.after) event.wait();
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

void HostQueue::delay() {
  if (delays_.longest.value <= 0) return;
  const CounterRandom random{delays_.seed, RandomPurpose::delays, number_};
  std::this_thread::sleep_for(std::chrono::duration<double>{delays_.longest.value * random.uniform(delayed_pieces_++)});
}

}  // namespace penstock
