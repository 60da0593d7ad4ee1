// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "base/units.hpp"

namespace penstock {

/// The free memory between two addresses, and for each free byte who freed it last.
class AddressMap {
 public:
  /// A range that was handed out, and the list positions of the actions that freed parts of it before (each once).
  struct Taken {
    Bytes offset;
    std::vector<std::int32_t> freed_by;
  };

  static constexpr Bytes without_end{std::numeric_limits<std::int64_t>::max()};
  explicit AddressMap(Bytes begin, Bytes end = without_end);
  /// The lowest free range of `bytes`, or the highest. @throws Error internal if there is none.
  Taken take(Bytes bytes);
  Taken take_highest(Bytes bytes);
  /// Gives back a range that was taken; `position` is the list position of the action that frees it.
  void free(Bytes offset, Bytes bytes, std::int32_t position);
  /// The highest end of what is taken now; the first address if nothing is. @pre the map has no end
  Bytes taken_end() const;

 private:
  struct Segment {
    std::int64_t end = 0;
    std::int32_t freed_by = never_used;
  };
  static constexpr std::int32_t never_used = -1;

  Taken cut(std::int64_t begin, std::int64_t end);
  void split(std::int64_t at);

  std::map<std::int64_t, Segment> free_;  // by begin; neighbours may touch: they were freed by different actions
};

}  // namespace penstock
