// SPDX-License-Identifier: Apache-2.0
#include "comm/futex.hpp"

#include <cmath>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace penstock {
namespace {

/// The call that std::atomic::wait makes too, but with a limit, and between processes.
void futex(const FutexWord& word, int operation, std::uint32_t value, const timespec* longest) {
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), operation, value, longest, nullptr, 0);
}

timespec to_timespec(Seconds seconds) {
  const double whole = std::floor(seconds.value);
  timespec result{};
  result.tv_sec = static_cast<time_t>(whole);
  result.tv_nsec = static_cast<std::int64_t>((seconds.value - whole) * 1e9);
  return result;
}

}  // namespace

void sleep_on(const FutexWord& word, std::uint32_t value, std::optional<Seconds> longest) {
  const timespec limit = to_timespec(longest.value_or(Seconds{0}));
  futex(word, FUTEX_WAIT, value, longest ? &limit : nullptr);
}

void wake_sleepers(FutexWord& word, int count) {
  futex(word, FUTEX_WAKE, static_cast<std::uint32_t>(count), nullptr);
}

}  // namespace penstock
