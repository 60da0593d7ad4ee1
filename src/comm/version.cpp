// SPDX-License-Identifier: Apache-2.0
#include "comm/version.hpp"

#include "base/error.hpp"
#include "base/units.hpp"

namespace penstock {
namespace {

/// Readers look at `stop` so often: they cannot be woken by it, as they may not write to the word that they sleep on.
constexpr Seconds between_looks{50e-3};

}  // namespace

void Version::publish(std::int64_t version) {
  const std::int64_t last = value_.load(std::memory_order_relaxed);
  require(version > last, "version {} is published after version {}", version, last);
  value_.store(version, std::memory_order_release);
  changes_.fetch_add(1);
  wake_sleepers(changes_);
}

bool Version::wait_for(std::int64_t wanted, const std::atomic<bool>& stop) const {
  while (!stop.load()) {
    // Read before the version: a version published in between changes it, and the sleep ends at once.
    const std::uint32_t changes = changes_.load();
    if (get() >= wanted) return true;
    sleep_on(changes_, changes, between_looks);
  }
  return false;
}

}  // namespace penstock
