// SPDX-License-Identifier: Apache-2.0
#include "cost/exchange.hpp"

#include <cstddef>

namespace penstock {
namespace {

std::int32_t places(const LockstepUnit& unit) {
  return unit.slices * unit.virtual_stages;
}

/// The slice at a place of the order: groups of `ranks` slices, each through all virtual stages; round and round.
std::int32_t slice_at(const LockstepUnit& unit, std::int32_t place) {
  const std::int32_t all = places(unit);
  const std::int32_t wrapped = (place % all + all) % all;
  const std::int32_t group = wrapped / (unit.ranks * unit.virtual_stages);
  return group * unit.ranks + wrapped % unit.ranks;
}

std::int32_t place_of(const LockstepUnit& unit) {
  const std::int32_t group = unit.slice / unit.ranks;
  return (group * unit.virtual_stages + unit.chunk) * unit.ranks + unit.slice % unit.ranks;
}

/// Slots are numbered by the place of rank 0.
std::size_t slot_of(const LockstepUnit& unit) {
  return static_cast<std::size_t>((place_of(unit) + unit.rank) % places(unit));
}

/// What each rank of a slot attends to and moves after the exchange.
void append_slot(const ExchangeRule& rule, const SlotSlices& slices, std::vector<BalancedAttention>& out) {
  PerRank<BalancedAttention> balanced{slices.size()};
  for (const Rank rank : all<Rank>(slices.size())) balanced[rank].length = attention_halves(*slices[rank]) / 2.0;
  for (const ChunkShare& share : share_attention(rule, slices)) {
    const double moved = (share.end - share.begin) / 2.0;
    balanced[share.owner].length -= moved;
    balanced[share.helper].length += moved;
    balanced[share.owner].exchanged += moved;
    balanced[share.helper].exchanged += moved;
  }
  out.insert(out.end(), balanced.begin(), balanced.end());
}

}  // namespace

BalancedLockstep::BalancedLockstep(const ExchangeRule& rule, const LockstepUnit& shape) {
  for (std::int32_t slot = 0; slot < places(shape); ++slot) {
    SlotSlices slices{shape.ranks};
    for (const Rank rank : all<Rank>(shape.ranks)) slices[rank] = Slice{slice_at(shape, slot - rank.value())};
    append_slot(rule, slices, by_slot_and_rank_);
  }
}

BalancedAttention BalancedLockstep::of(const LockstepUnit& unit) const {
  return by_slot_and_rank_[slot_of(unit) * static_cast<std::size_t>(unit.ranks) + static_cast<std::size_t>(unit.rank)];
}

}  // namespace penstock
