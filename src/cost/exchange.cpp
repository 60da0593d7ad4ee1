// SPDX-License-Identifier: Apache-2.0
#include "cost/exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

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

void share_in_pairs(const std::vector<double>& lengths, std::vector<BalancedAttention>& out) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  const std::size_t first = out.size();
  out.resize(first + lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double own = lengths[order[i]];
    const double received = std::trunc((lengths[order[order.size() - 1 - i]] - own) / 2);
    out[first + order[i]] = {own + received, std::abs(received)};
  }
}

void share_among_all(const std::vector<double>& lengths, std::vector<BalancedAttention>& out) {
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  for (const double own : lengths) out.push_back({mean, std::abs(mean - own)});
}

}  // namespace

BalancedLockstep::BalancedLockstep(Exchange exchange, const LockstepUnit& shape) {
  for (std::int32_t slot = 0; slot < places(shape); ++slot) {
    std::vector<double> lengths;
    lengths.reserve(static_cast<std::size_t>(shape.ranks));
    for (std::int32_t rank = 0; rank < shape.ranks; ++rank) lengths.push_back(slice_at(shape, slot - rank) + 0.5);
    switch (exchange) {
      case Exchange::none:
        for (const double own : lengths) by_slot_and_rank_.push_back({own, 0});
        break;
      case Exchange::pairwise:
        share_in_pairs(lengths, by_slot_and_rank_);
        break;
      case Exchange::global:
        share_among_all(lengths, by_slot_and_rank_);
        break;
    }
  }
}

BalancedAttention BalancedLockstep::of(const LockstepUnit& unit) const {
  return by_slot_and_rank_[slot_of(unit) * static_cast<std::size_t>(unit.ranks) + static_cast<std::size_t>(unit.rank)];
}

}  // namespace penstock
