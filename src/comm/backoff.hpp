// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.hpp"

namespace penstock {

/// The pauses between tests of something that MPI cannot wake us for: none before the first few tests, then 20 us,
/// growing by a quarter each time to 200 us. A message that is nearly there is seen at once; a long wait costs 5,000
/// tests a second.
class Backoff {
 public:
  void reset() { tests_ = 0; }
  /// The pause before the next test; 0 says to test again at once.
  Seconds next();
  /// Sleeps for next().
  void pause();

 private:
  int tests_ = 0;
  Seconds pause_{0};
};

/// Lets the sleeps of this thread, and of threads that it starts later, end within a few microseconds of their time;
/// Linux adds up to 50 us otherwise.
void sharpen_sleeps();

}  // namespace penstock
