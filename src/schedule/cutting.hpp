// SPDX-License-Identifier: Apache-2.0
//
// Where sequences are cut into slices.
#pragma once

#include <array>
#include <cstdint>

#include "base/describe.hpp"
#include "base/index.hpp"

namespace penstock {

enum class Cutting : std::uint8_t {
  even,     ///< slices of equal length
  balanced  ///< slices of equal work: the later a slice, the more keys its tokens attend to, and the fewer they are
};

constexpr std::array<EnumName<Cutting>, 2> enum_names(Cutting) {
  return {{{Cutting::even, "even"}, {Cutting::balanced, "balanced"}}};
}

/// Consecutive tokens of each sequence.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return begin + count; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

/// A sequence and its slices.
struct SequenceCut {
  std::int64_t tokens = 1;
  std::int32_t slices = 1;  ///< at most as many as tokens
  /// What attending to one key costs, in units of all else that is done for a token; 0: the slices are of equal length.
  double key_cost = 0;

  /// Slices of equal length differ by at most one token, the longer ones come first.
  ///
  /// With a key_cost c the token at position t costs 1 + c (t + 1), the first x tokens W(x) = x + c x (x + 1) / 2, and
  /// border k is the whole number next to the root of W(x) = W(tokens) k / slices: no slice differs from the mean by
  /// more than the cost of a token. (TeraPipe and Seq1F1B search for such borders; the root needs no search.) Where
  /// there are hardly more tokens than slices, each has at least one.
  TokenRange slice(Slice slice) const;
  /// Tokens of the longest one.
  std::int64_t longest() const;

 private:
  std::int64_t border(std::int32_t slice) const;
  std::int64_t nearest_border(std::int32_t slice) const;
};

}  // namespace penstock
