// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/units.hpp"

namespace penstock {

/// A flag that one thread sleeps on and any thread raises; raised before the sleep, it ends the sleep at once.
class Signal {
 public:
  void raise() {
    {
      const std::lock_guard lock{mutex_};
      is_raised_ = true;
    }
    raised_.notify_one();
  }
  /// Sleeps until the flag is raised, and lowers it.
  void wait() {
    std::unique_lock lock{mutex_};
    raised_.wait(lock, [this] { return is_raised_; });
    is_raised_ = false;
  }
  /// The same, but not longer than `longest`.
  void wait(Seconds longest) {
    std::unique_lock lock{mutex_};
    raised_.wait_for(lock, std::chrono::duration<double>{longest.value}, [this] { return is_raised_; });
    is_raised_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable raised_;
  bool is_raised_ = false;
};

}  // namespace penstock
