// SPDX-License-Identifier: Apache-2.0
#include "execute/watchdog.hpp"

#include <chrono>

namespace penstock {

Watchdog::Watchdog(Seconds limit, std::function<std::int64_t()> progress, std::function<void(Seconds)> expired)
    : limit_{limit}, progress_{std::move(progress)}, expired_{std::move(expired)} {
  if (limit_.value > 0) thread_ = std::thread{[this] { watch(); }};
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch() {
  const std::chrono::duration<double> between_looks{interval(limit_).value};
  std::int64_t seen = progress_();
  Seconds since = now();
  std::unique_lock lock{mutex_};
  while (!stop_changed_.wait_for(lock, between_looks, [this] { return stop_; })) {
    const std::int64_t current = progress_();
    if (current != seen) {
      seen = current;
      since = now();
    } else if (now() - since > limit_) {
      // Not under the lock: what is called may take locks of its own, which others hold when they end the watch.
      lock.unlock();
      expired_(now() - since);
      return;
    }
  }
}

}  // namespace penstock
