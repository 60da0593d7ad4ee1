// SPDX-License-Identifier: Apache-2.0
//
// SlimPipe's attention context exchange: in a lockstep slot each rank works on another slice, with more or fewer keys
// before it, and ranks share the difference (methods, section 3.4). Here is who attends to which keys; when ranks are
// in one slot is said in schedule/lockstep.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/describe.hpp"
#include "base/index.hpp"

namespace penstock {

/// Who attends to the keys of a slice when all ranks work in lockstep.
enum class Exchange : std::uint8_t {
  none,      ///< each rank to those of its own slice
  pairwise,  ///< the rank with the k-th shortest and the one with the k-th longest share theirs
  global     ///< all ranks share all
};

constexpr std::array<EnumName<Exchange>, 3> enum_names(Exchange) {
  return {{{Exchange::none, "none"}, {Exchange::pairwise, "pairwise"}, {Exchange::global, "global"}}};
}

/// What of the keys and values of a slice is handed on at once.
enum class ExchangeGrain : std::uint8_t {
  chunk,  ///< all of a slice
  half    ///< the first or the second half of its tokens
};

constexpr std::array<EnumName<ExchangeGrain>, 2> enum_names(ExchangeGrain) {
  return {{{ExchangeGrain::chunk, "chunk"}, {ExchangeGrain::half, "half"}}};
}

struct ExchangeRule {
  Exchange exchange = Exchange::none;
  ExchangeGrain grain = ExchangeGrain::chunk;
  bool shares() const { return exchange != Exchange::none; }
  friend bool operator==(const ExchangeRule&, const ExchangeRule&) = default;
};

/// Without a grain pairs share whole chunks, as published, and all ranks halves, which make all of them equal.
ExchangeRule exchange_rule(Exchange exchange, std::optional<ExchangeGrain> grain);

/// Of a slice of so many tokens, those of its first half chunk: of an odd number one more than of the second.
constexpr std::int64_t tokens_of_first_half(std::int64_t tokens) {
  return tokens - tokens / 2;
}

/// Keys of `owner`'s slice that `helper` attends to in its place: the half chunks begin .. end - 1. Slice c has the
/// half chunks 2c and 2c + 1. A slice's own chunk, under the causal mask and half of a chunk's work, is never handed
/// on.
struct ChunkShare {
  Rank owner;
  Rank helper;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  friend bool operator==(const ChunkShare&, const ChunkShare&) = default;
};

/// The slice that each rank works on in one slot; empty: none, and the rank takes no part.
using SlotSlices = PerRank<std::optional<Slice>>;

/// What is handed on in one slot: owners ascending, in each the half chunks ascending. What an owner hands on are its
/// oldest keys, so that it keeps one range, the newest. Whoever hands on helps nobody. A function of its arguments
/// alone.
///
/// After `pairwise` a rank and its counterpart differ by at most one piece, after `global` any two ranks: a rank then
/// has at most half a chunk more than the mean, or with halves nothing more where a slot's slices are all residues
/// modulo its ranks once, as in lockstep they are.
std::vector<ChunkShare> share_attention(ExchangeRule rule, const SlotSlices& slices);

/// Half chunks of attention of a slice, the causal one counted as one: 2 k + 1.
constexpr std::int32_t attention_halves(Slice slice) {
  return 2 * slice.value() + 1;
}

}  // namespace penstock
