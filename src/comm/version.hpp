// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/units.hpp"
#include "comm/futex.hpp"

namespace penstock {

/// The version of something that one thread writes and others read, in this process and in those that share its memory:
/// what was written before publish(v) is seen after a wait for v. Readers may have the memory for reading only.
class Version {
 public:
  static constexpr std::int64_t none = -1;  ///< nothing is published yet
  static constexpr Bytes number_place{0};   ///< of the number, within a Version

  std::int64_t get() const { return value_.load(std::memory_order_acquire); }
  /// By the writer alone; versions only grow. Wakes all who wait. @throws Error if `version` is not above the last one
  void publish(std::int64_t version);
  /// Any thread. Sleeps until the version is at least `wanted` (true), or `stop` is set (false, within 50 ms).
  bool wait_for(std::int64_t wanted, const std::atomic<bool>& stop) const;

 private:
  std::atomic<std::int64_t> value_{none};
  FutexWord changes_{0};
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share it: a lock would be one of each");
};

}  // namespace penstock
