// SPDX-License-Identifier: Apache-2.0
#include "cost/exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace penstock {
namespace {

/// The slice at a place of the order: groups of `ranks` slices, each through all virtual stages; round and round.
std::int32_t slice_at(const LockstepUnit& unit, std::int32_t place) {
  const std::int32_t places = unit.slices * unit.virtual_stages;
  const std::int32_t wrapped = (place % places + places) % places;
  const std::int32_t group = wrapped / (unit.ranks * unit.virtual_stages);
  return group * unit.ranks + wrapped % unit.ranks;
}

std::int32_t place_of(const LockstepUnit& unit) {
  const std::int32_t group = unit.slice / unit.ranks;
  return (group * unit.virtual_stages + unit.chunk) * unit.ranks + unit.slice % unit.ranks;
}

/// The rank whose length is as far from the longest as this one's is from the shortest.
std::size_t partner_of(const std::vector<double>& lengths, std::size_t rank) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  const auto place = static_cast<std::size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  return order[order.size() - 1 - place];
}

}  // namespace

std::vector<double> lockstep_lengths(const LockstepUnit& unit) {
  std::vector<double> lengths;
  for (std::int32_t rank = 0; rank < unit.ranks; ++rank) {
    lengths.push_back(slice_at(unit, place_of(unit) + unit.rank - rank) + 0.5);
  }
  return lengths;
}

BalancedAttention balanced_attention(Exchange exchange, const LockstepUnit& unit) {
  const double own = unit.slice + 0.5;
  if (exchange == Exchange::none) return {own, 0};
  const auto lengths = lockstep_lengths(unit);
  if (exchange == Exchange::global) {
    const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / unit.ranks;
    return {mean, std::abs(mean - own)};
  }
  const double peer = lengths[partner_of(lengths, static_cast<std::size_t>(unit.rank))];
  const double received = std::trunc((peer - own) / 2);
  return {own + received, std::abs(received)};
}

}  // namespace penstock
