// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pacer.hpp"

#include <algorithm>
#include <chrono>

namespace penstock {

Pace::Pace(Bytes total, Seconds spread, Seconds begin) : begin_{begin} {
  if (total.value <= 0) return;
  seconds_per_byte_ = std::clamp(spread.value / static_cast<double>(total.value), 0.0,
                                 1.0 / static_cast<double>(slowest_bytes_per_second));
}

Seconds Pace::pause(Bytes written, Seconds at) const {
  const Seconds due = begin_ + Seconds{seconds_per_byte_ * static_cast<double>(written.value)};
  return std::max(due - at, Seconds{0});
}

void Pacer::begin(Bytes total, Seconds spread) {
  const std::lock_guard lock{mutex_};
  pace_ = Pace{total, spread, now()};
  written_ = Bytes{0};
  is_hurried_ = false;
}

void Pacer::wrote(Bytes bytes) {
  std::unique_lock lock{mutex_};
  written_ += bytes;
  const std::chrono::duration<double> pause{pace_.pause(written_, now()).value};
  hurried_.wait_for(lock, pause, [this] { return is_hurried_; });
}

void Pacer::hurry() {
  {
    const std::lock_guard lock{mutex_};
    is_hurried_ = true;
  }
  hurried_.notify_all();
}

}  // namespace penstock
