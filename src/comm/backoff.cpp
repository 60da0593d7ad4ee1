// SPDX-License-Identifier: Apache-2.0
#include "comm/backoff.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <sys/prctl.h>

namespace penstock {
namespace {

constexpr int quick_tests = 4;
constexpr Seconds shortest_pause{20e-6};
constexpr Seconds longest_pause{200e-6};
constexpr double growth = 1.25;
constexpr unsigned long slack_nanoseconds = 1000;

}  // namespace

Seconds Backoff::next() {
  ++tests_;
  if (tests_ <= quick_tests) return {0};
  pause_ = tests_ == quick_tests + 1 ? shortest_pause : Seconds{std::min(pause_.value * growth, longest_pause.value)};
  return pause_;
}

void Backoff::pause() {
  const Seconds length = next();
  if (length.value > 0) std::this_thread::sleep_for(std::chrono::duration<double>{length.value});
}

void sharpen_sleeps() {
  prctl(PR_SET_TIMERSLACK, slack_nanoseconds, 0, 0, 0);
}

}  // namespace penstock
