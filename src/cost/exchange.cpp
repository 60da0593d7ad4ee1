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

/// Tokens of the keys of a sequence before half chunk `half`.
std::int64_t tokens_before(const SequenceCut& cut, std::int32_t half) {
  const TokenRange chunk = cut.slice(Slice{half / 2});
  return chunk.begin + (half % 2 == 0 ? 0 : tokens_of_first_half(chunk.count));
}

/// What each rank of a slot attends to and moves after the exchange.
void append_slot(const ExchangeRule& rule, const SequenceCut& cut, const SlotSlices& slices,
                 std::vector<BalancedAttention>& out) {
  PerRank<BalancedAttention> balanced{slices.size()};
  PerRank<double> tokens{slices.size()};
  for (const Rank rank : all<Rank>(slices.size())) {
    const TokenRange range = cut.slice(*slices[rank]);
    tokens[rank] = static_cast<double>(range.count);
    balanced[rank].length = static_cast<double>(range.begin) / tokens[rank] + 0.5;
  }
  for (const ChunkShare& share : share_attention(rule, slices)) {
    const auto keys = static_cast<double>(tokens_before(cut, share.end) - tokens_before(cut, share.begin));
    const double of_owner = keys / tokens[share.owner];
    const double of_helper = keys / tokens[share.helper];
    balanced[share.owner].length -= of_owner;
    balanced[share.helper].length += of_helper * (tokens[share.owner] / tokens[share.helper]);
    balanced[share.owner].exchanged += of_owner;
    balanced[share.helper].exchanged += of_helper;
  }
  out.insert(out.end(), balanced.begin(), balanced.end());
}

}  // namespace

BalancedLockstep::BalancedLockstep(const ExchangeRule& rule, const LockstepUnit& shape, const SequenceCut& cut) {
  for (std::int32_t slot = 0; slot < places(shape); ++slot) {
    SlotSlices slices{shape.ranks};
    for (const Rank rank : all<Rank>(shape.ranks)) slices[rank] = Slice{slice_at(shape, slot - rank.value())};
    append_slot(rule, cut, slices, by_slot_and_rank_);
  }
}

BalancedAttention BalancedLockstep::of(const LockstepUnit& unit) const {
  return by_slot_and_rank_[slot_of(unit) * static_cast<std::size_t>(unit.ranks) + static_cast<std::size_t>(unit.rank)];
}

}  // namespace penstock
