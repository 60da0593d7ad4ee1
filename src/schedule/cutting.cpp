// SPDX-License-Identifier: Apache-2.0
#include "schedule/cutting.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

TokenRange SequenceCut::slice(Slice slice) const {
  const std::int32_t number = slice.value();
  const std::int64_t begin = border(number);
  return {begin, border(number + 1) - begin};
}

std::int64_t SequenceCut::longest() const {
  std::int64_t longest = 0;
  for (const Slice slice : all<Slice>(slices)) longest = std::max(longest, this->slice(slice).count);
  return longest;
}

std::int64_t SequenceCut::border(std::int32_t slice) const {
  if (key_cost == 0) return slice * (tokens / slices) + std::min<std::int64_t>(slice, tokens % slices);
  // Each of the slices behind needs a token. Borders lie closer the later they are, so that none is left before them.
  std::int64_t latest = tokens;
  for (std::int32_t later = slice; later < slices; ++later) {
    latest = std::min(latest, nearest_border(later) - (later - slice));
  }
  return std::min(latest, tokens - (slices - slice));
}

std::int64_t SequenceCut::nearest_border(std::int32_t slice) const {
  const auto length = static_cast<double>(tokens);
  const double linear = 1 + key_cost / 2;
  const double work = (linear + key_cost / 2 * length) * length * slice / slices;
  // Of the two forms of the root the one that subtracts nothing.
  return std::llround(2 * work / (linear + std::sqrt(linear * linear + 2 * key_cost * work)));
}

}  // namespace penstock
