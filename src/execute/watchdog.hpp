// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

  /// How much later than others a watchdog of that limit may notice a stall that all have: two of its looks.
  static Seconds latest_notice(Seconds limit) { return Seconds{2 * interval(limit).value}; }

 private:
  /// Looks ten times within the limit: a stall is noticed at most a tenth later than promised.
  static Seconds interval(Seconds limit) { return Seconds{std::min(1.0, limit.value / 10)}; }
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
