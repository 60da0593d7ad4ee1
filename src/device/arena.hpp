// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/units.hpp"

namespace penstock {

/// Hands out ranges of one block of device memory at the offsets of the plan, and refuses what the plan cannot have
/// meant: a range beyond the capacity, or one that overlaps a live range. Keeps the highest address handed out: the
/// measured peak.
///
/// Bookkeeping only, in the order of the rank's list; not thread-safe.
class Arena {
 public:
  Arena(std::byte* base, Bytes capacity);
  /// The address of [offset, offset + bytes). `who` names the buffer in errors.
  /// @throws Error internal beyond the capacity or on overlap, naming both buffers.
  std::byte* take(Bytes offset, Bytes bytes, const std::string& who);
  /// @throws Error internal if no live range starts at `offset`.
  void free(Bytes offset);
  Bytes peak() const { return peak_; }
  Bytes capacity() const { return capacity_; }

 private:
  struct Range {
    Bytes end;
    std::string who;
  };
  std::byte* base_;
  Bytes capacity_;
  Bytes peak_{0};
  std::map<std::int64_t, Range> live_;  // by offset
};

}  // namespace penstock
