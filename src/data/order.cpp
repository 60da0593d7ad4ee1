// SPDX-License-Identifier: Apache-2.0
#include "data/order.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/random.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t rounds = 8;

}  // namespace

SampleOrder::SampleOrder(std::int64_t count, std::uint64_t seed, std::int64_t epoch)
    : count_{static_cast<std::uint64_t>(count)}, seed_{seed}, epoch_{static_cast<std::uint64_t>(epoch)} {
  require(count >= 1 && epoch >= 0, "the order of {} samples in epoch {}", count, epoch);
  half_bits_ = std::max(1U, (static_cast<unsigned>(std::bit_width(count_ - 1)) + 1) / 2);
}

std::uint64_t SampleOrder::encipher(std::uint64_t value) const {
  const CounterRandom random{seed_, RandomPurpose::sample_order, epoch_};
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;  // at most 32 bits: count is below 2^63
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t mixed = left ^ (random.words((round << 32U) | right)[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

std::int64_t SampleOrder::operator[](std::int64_t index) const {
  require(index >= 0 && static_cast<std::uint64_t>(index) < count_, "place {} among {} samples", index, count_);
  std::uint64_t value = static_cast<std::uint64_t>(index);
  do value = encipher(value);
  while (value >= count_);
  return static_cast<std::int64_t>(value);
}

}  // namespace penstock
