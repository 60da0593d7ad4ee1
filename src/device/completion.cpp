// SPDX-License-Identifier: Apache-2.0
#include "device/completion.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace penstock {

/// All fields but `complete_` are written once, under the lock, before `complete_` becomes true, and are constant from
/// then on: whoever has seen `complete_` reads them without the lock.
class Completion::State final : public Event::State {
 public:
  bool is_complete() const override { return complete_.load(std::memory_order_acquire); }

  void wait() const override {
    if (!is_complete()) {
      std::unique_lock lock{mutex_};
      done_.wait(lock, [this] { return is_complete(); });
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  void on_complete(std::function<void()> callback) override {
    {
      const std::lock_guard lock{mutex_};
      if (!is_complete()) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  std::exception_ptr failure() const override { return is_complete() ? failure_ : nullptr; }
  Seconds started() const override { return is_complete() ? started_ : Seconds{}; }
  Seconds finished() const override { return is_complete() ? finished_ : Seconds{}; }

  void complete(std::exception_ptr failure, Seconds started) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock{mutex_};
      require(!is_complete(), "an event was completed twice");
      failure_ = std::move(failure);
      started_ = started;
      finished_ = now();
      callbacks.swap(callbacks_);
      complete_.store(true, std::memory_order_release);
    }
    done_.notify_all();
    // Outside the lock: a callback may ask this event, or take locks whose holders ask it.
    for (const auto& callback : callbacks) callback();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;
  std::atomic<bool> complete_{false};
  std::exception_ptr failure_;
  Seconds started_;
  Seconds finished_;
  std::vector<std::function<void()>> callbacks_;
};

Completion::Completion() : state_{std::make_shared<State>()} {}

Completion::~Completion() {
  give_up();
}

Completion& Completion::operator=(Completion&& other) noexcept {
  if (this != &other) {
    give_up();
    state_ = std::move(other.state_);
  }
  return *this;
}

Event Completion::event() const {
  return Event{state_};
}

void Completion::succeed(Seconds started) {
  state_->complete(nullptr, started);
}

void Completion::fail(std::exception_ptr failure, Seconds started) {
  state_->complete(std::move(failure), started);
}

void Completion::give_up() noexcept {
  if (!state_ || state_->is_complete()) return;
  try {
    fail(std::make_exception_ptr(Error{ExitCode::internal, "queued work was dropped before it ran"}));
  } catch (...) {
    std::terminate();  // a callback threw, which it must not
  }
}

}  // namespace penstock
