// SPDX-License-Identifier: Apache-2.0
#include "device/arena.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace penstock {
namespace {

/// "`keys of slice 3` [4096, 8192)".
std::string range_text(const std::string& who, std::int64_t begin, std::int64_t end) {
  return fmt::format("`{}` [{}, {})", who, begin, end);
}

}  // namespace

Arena::Arena(std::byte* base, Bytes capacity) : base_{base}, capacity_{capacity} {
  require(capacity.value >= 0, "an arena of {} bytes", capacity.value);
}

std::byte* Arena::take(Bytes offset, Bytes bytes, const std::string& who) {
  const std::int64_t begin = offset.value;
  // Compared without adding, which could overflow.
  require(begin >= 0 && bytes.value >= 0 && begin <= capacity_.value && bytes.value <= capacity_.value - begin,
          "device memory: `{}` takes {} bytes at offset {}, beyond the capacity of {} bytes: the plan is too small",
          who, bytes.value, begin, capacity_.value);
  const std::int64_t end = begin + bytes.value;
  const auto after = live_.lower_bound(begin);
  if (after != live_.end() && (after->first < end || after->first == begin)) {
    fail(ExitCode::internal, "device memory: {} overlaps {}, which is still in use", range_text(who, begin, end),
         range_text(after->second.who, after->first, after->second.end.value));
  }
  if (after != live_.begin()) {
    const auto& [before_begin, before] = *std::prev(after);
    require(before.end.value <= begin, "device memory: {} overlaps {}, which is still in use",
            range_text(who, begin, end), range_text(before.who, before_begin, before.end.value));
  }
  live_.emplace_hint(after, begin, Range{Bytes{end}, who});
  peak_ = std::max(peak_, Bytes{end});
  return base_ + begin;
}

void Arena::free(Bytes offset) {
  require(live_.erase(offset.value) == 1, "device memory: nothing in use starts at offset {}, so it cannot be freed",
          offset.value);
}

}  // namespace penstock
