// SPDX-License-Identifier: Apache-2.0
#include "support/watchdog.hpp"

#include <utility>

namespace penstock::test {

Watchdog::Watchdog(std::chrono::duration<double> limit, std::function<void()> expired)
    : limit_{limit}, expired_{std::move(expired)}, thread_{[this] { run(); }} {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock{mutex_};
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::start() {
  {
    const std::lock_guard lock{mutex_};
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit_);
  }
  changed_.notify_one();
}

void Watchdog::stop() {
  const std::lock_guard lock{mutex_};
  deadline_.reset();
}

void Watchdog::run() {
  std::unique_lock lock{mutex_};
  while (!closing_) {
    if (!deadline_) {
      changed_.wait(lock);
    } else if (Clock::now() < *deadline_) {
      const auto until = *deadline_;
      changed_.wait_until(lock, until);
    } else {
      deadline_.reset();
      lock.unlock();
      expired_();
      lock.lock();
    }
  }
}

}  // namespace penstock::test
