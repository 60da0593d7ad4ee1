// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>

#include "base/units.hpp"
#include "comm/futex.hpp"

namespace penstock {

/// What a thread sleeps on, and others raise to end its sleep. It may lie in memory that processes share.
using WakeFlag = FutexWord;

/// Raises the flag, and wakes who sleeps on it. Asks the kernel only if the flag was down.
void raise(WakeFlag& flag);

/// Sleeps until the flag is raised, but not longer than `longest`, if that is given, and lowers it. Raised before the
/// sleep, it ends it at once. Returns whether it was raised. For one thread.
bool wait_for(WakeFlag& flag, std::optional<Seconds> longest = std::nullopt);

/// A flag that one thread sleeps on and any thread of the process raises, also after the memory of the flag is gone.
class Signal {
 public:
  /// On a flag of its own, or on `flag`, which lives until `detach`.
  explicit Signal(WakeFlag* flag = nullptr) : flag_{flag == nullptr ? &own_ : flag} {}

  void raise() {
    const std::lock_guard lock{mutex_};
    if (flag_ != nullptr) penstock::raise(*flag_);
  }
  bool wait(std::optional<Seconds> longest = std::nullopt) { return wait_for(*flag_, longest); }
  /// From now on nobody waits, and the flag is not touched.
  void detach() {
    const std::lock_guard lock{mutex_};
    flag_ = nullptr;
  }

 private:
  WakeFlag own_{0};
  std::mutex mutex_;
  WakeFlag* flag_;
};

}  // namespace penstock
