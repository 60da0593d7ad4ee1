// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/units.hpp"

namespace penstock {

/// Ends a run that has stopped moving: when `progress` has not changed for `limit` while armed, calls `expired` once,
/// from the watchdog's thread.
class Watchdog {
 public:
  /// A limit of 0 s: no watch is kept.
  Watchdog(Seconds limit, std::function<std::int64_t()> progress, std::function<void(Seconds)> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();

  Seconds limit_;
  std::function<std::int64_t()> progress_;
  std::function<void(Seconds)> expired_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace penstock
