// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/units.hpp"

namespace penstock {

/// A word that the kernel lets threads sleep on, also those of other processes that share its memory.
using FutexWord = std::atomic<std::uint32_t>;
static_assert(FutexWord::is_always_lock_free && sizeof(FutexWord) == 4, "the kernel looks at its 32 bits");

/// Sleeps while `word` is `value`, but not longer than `longest`, if that is given; may return early. The word may lie
/// in memory that this process can only read.
void sleep_on(const FutexWord& word, std::uint32_t value, std::optional<Seconds> longest = std::nullopt);

/// Wakes `count` of those who sleep on `word`.
void wake_sleepers(FutexWord& word, int count = std::numeric_limits<int>::max());

}  // namespace penstock
