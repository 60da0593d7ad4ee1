// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace penstock::test {

/// Calls `expired` from a thread of its own when a watch is not ended within the time limit.
class Watchdog {
 public:
  Watchdog(std::chrono::duration<double> limit, std::function<void()> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Starts a new watch, ending the one before.
  void start();
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  void run();

  const std::chrono::duration<double> limit_;
  const std::function<void()> expired_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> deadline_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace penstock::test
