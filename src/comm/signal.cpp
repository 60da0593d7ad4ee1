// SPDX-License-Identifier: Apache-2.0
#include "comm/signal.hpp"

#include <cmath>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace penstock {
namespace {

constexpr std::uint32_t down = 0;
constexpr std::uint32_t up = 1;

/// The call that std::atomic::wait makes too, but with a limit, and between processes.
void futex(WakeFlag& flag, int operation, std::uint32_t value, const timespec* longest) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&flag), operation, value, longest, nullptr, 0);
}

timespec to_timespec(Seconds seconds) {
  const double whole = std::floor(seconds.value);
  timespec result{};
  result.tv_sec = static_cast<time_t>(whole);
  result.tv_nsec = static_cast<std::int64_t>((seconds.value - whole) * 1e9);
  return result;
}

}  // namespace

void raise(WakeFlag& flag) {
  if (flag.exchange(up) == down) futex(flag, FUTEX_WAKE, 1, nullptr);
}

bool wait_for(WakeFlag& flag, std::optional<Seconds> longest) {
  if (flag.exchange(down) == up) return true;
  if (longest) {
    // One sleep: woken for nothing, the thread looks for news earlier than it had to.
    const timespec limit = to_timespec(*longest);
    futex(flag, FUTEX_WAIT, down, &limit);
  } else {
    while (flag.load() == down) futex(flag, FUTEX_WAIT, down, nullptr);
  }
  return flag.exchange(down) == up;  // what was done before the flag was raised is seen from here on
}

}  // namespace penstock
