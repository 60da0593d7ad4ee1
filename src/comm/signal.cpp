// SPDX-License-Identifier: Apache-2.0
#include "comm/signal.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t down = 0;
constexpr std::uint32_t up = 1;

}  // namespace

void raise(WakeFlag& flag) {
  if (flag.exchange(up) == down) wake_sleepers(flag, 1);
}

bool wait_for(WakeFlag& flag, std::optional<Seconds> longest) {
  if (flag.exchange(down) == up) return true;
  if (longest) {
    // One sleep: woken for nothing, the thread looks for news earlier than it had to.
    sleep_on(flag, down, longest);
  } else {
    while (flag.load() == down) sleep_on(flag, down);
  }
  return flag.exchange(down) == up;  // what was done before the flag was raised is seen from here on
}

}  // namespace penstock
