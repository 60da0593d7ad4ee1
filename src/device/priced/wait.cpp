// SPDX-License-Identifier: Apache-2.0
#include "device/priced/wait.hpp"

#include <cerrno>
#include <cmath>
#include <cstdint>

#include <sys/prctl.h>
#include <time.h>

namespace penstock {
namespace {

constexpr std::int64_t second = 1'000'000'000;  // in nanoseconds

/// Linux wakes threads up to 50 us late, so as to wake several at once, unless they ask for less.
void wake_on_time() {
  thread_local const bool asked = prctl(PR_SET_TIMERSLACK, 1UL) == 0;
  static_cast<void>(asked);
}

/// now() counts on this clock too.
void sleep_until(std::int64_t nanoseconds) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(nanoseconds / second);
  until.tv_nsec = nanoseconds % second;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace

void wait_until(Seconds deadline) {
  wake_on_time();
  auto nanoseconds = static_cast<std::int64_t>(std::ceil(deadline.value * static_cast<double>(second)));
  // A double of seconds resolves less than a nanosecond, but rounds: what is then still lacking is slept again.
  for (; now() < deadline; nanoseconds += 100) sleep_until(nanoseconds);
}

}  // namespace penstock
