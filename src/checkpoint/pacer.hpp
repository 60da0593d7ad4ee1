// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/units.hpp"

namespace penstock {

/// The timetable of a write in the background: as many bytes in each second, so that what it takes from training (time
/// of the cores for checksums and copies, bandwidth of the memory) is spread over many steps and no single one pays for
/// all of it.
class Pace {
 public:
  /// Slower than this nothing is gained: a core hashes and copies so much in a few hundredths of a second.
  static constexpr std::int64_t slowest_bytes_per_second = std::int64_t{64} << 20;

  /// No timetable: everything at once.
  Pace() = default;
  /// `total` bytes evenly over `spread` from `begin` on, or in less time at the slowest pace.
  Pace(Bytes total, Seconds spread, Seconds begin);

  /// How long to wait at the time `at` when `written` bytes are done; 0 when the write is behind.
  Seconds pause(Bytes written, Seconds at) const;

 private:
  double seconds_per_byte_ = 0;
  Seconds begin_{0};
};

/// Keeps a writing thread to a Pace, until another thread waits for it.
class Pacer {
 public:
  /// Begins a write. Called before the writing thread starts with it.
  void begin(Bytes total, Seconds spread);
  /// Called by the writing thread after `bytes` more: sleeps until the next are due.
  void wrote(Bytes bytes);
  /// From now on no sleep, until the next `begin`: somebody waits for the end of the write.
  void hurry();

 private:
  std::mutex mutex_;
  std::condition_variable hurried_;
  Pace pace_;
  Bytes written_{0};
  bool is_hurried_ = false;
};

}  // namespace penstock
