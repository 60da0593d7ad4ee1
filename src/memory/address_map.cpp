// SPDX-License-Identifier: Apache-2.0
#include "memory/address_map.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace penstock {

AddressMap::AddressMap(Bytes begin, Bytes end) {
  if (begin < end) free_[begin.value] = {end.value, never_used};
}

AddressMap::Taken AddressMap::take(Bytes bytes) {
  std::int64_t run_begin = 0;
  std::int64_t run_end = -1;  // of the free segments that touch each other
  for (const auto& [begin, segment] : free_) {
    if (begin != run_end) run_begin = begin;
    run_end = segment.end;
    if (run_end - run_begin >= bytes.value) return cut(run_begin, run_begin + bytes.value);
  }
  fail(ExitCode::internal, "no free range of {} bytes from below", bytes.value);
}

AddressMap::Taken AddressMap::take_highest(Bytes bytes) {
  std::int64_t run_begin = -1;  // of the free segments that touch each other
  std::int64_t run_end = 0;
  for (auto segment = free_.rbegin(); segment != free_.rend(); ++segment) {
    if (segment->second.end != run_begin) run_end = segment->second.end;
    run_begin = segment->first;
    if (run_end - run_begin < bytes.value) continue;
    split(run_end - bytes.value);
    return cut(run_end - bytes.value, run_end);
  }
  fail(ExitCode::internal, "no free range of {} bytes from above", bytes.value);
}

void AddressMap::split(std::int64_t at) {
  const auto segment = std::prev(free_.upper_bound(at));
  if (segment->first == at) return;
  free_[at] = segment->second;
  segment->second.end = at;
}

Bytes AddressMap::taken_end() const {
  std::int64_t begin = without_end.value;
  for (auto segment = free_.rbegin(); segment != free_.rend() && segment->second.end == begin; ++segment) {
    begin = segment->first;
  }
  return Bytes{begin};
}

AddressMap::Taken AddressMap::cut(std::int64_t begin, std::int64_t end) {
  Taken taken{Bytes{begin}, {}};
  auto segment = free_.find(begin);
  while (segment != free_.end() && segment->first < end) {
    const Segment old = segment->second;
    const bool is_known = std::find(taken.freed_by.begin(), taken.freed_by.end(), old.freed_by) != taken.freed_by.end();
    if (old.freed_by != never_used && !is_known) taken.freed_by.push_back(old.freed_by);
    segment = free_.erase(segment);
    if (old.end > end) segment = free_.emplace_hint(segment, end, old);
  }
  return taken;
}

void AddressMap::free(Bytes offset, Bytes bytes, std::int32_t position) {
  std::int64_t begin = offset.value;
  std::int64_t end = offset.value + bytes.value;
  auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == end && after->second.freed_by == position) {
    end = after->second.end;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->second.end == begin && before->second.freed_by == position) {
      begin = before->first;
      free_.erase(before);
    }
  }
  free_[begin] = {end, position};
}

}  // namespace penstock
