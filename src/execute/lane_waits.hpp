// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/units.hpp"

namespace penstock {

/// Counts the seconds that actions of the compute lane wait for other ranks, so that they are not taken for work. For
/// the lane's thread alone.
class LaneWaits {
 public:
  /// Calls wait(), all of whose time is waiting.
  template <class Wait>
  void count(const Wait& wait) {
    const Seconds begin = now();
    wait();
    total_ += now() - begin;
  }
  /// What was counted since it was last asked.
  Seconds take() { return std::exchange(total_, {}); }

 private:
  Seconds total_{0};
};

}  // namespace penstock
