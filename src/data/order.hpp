// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace penstock {

/// A pseudo-random permutation of 0 .. count-1, evaluated one index at a time: no table, no state.
///
/// A Feistel network over the smallest even number of bits that holds count-1, its rounds keyed by (seed, epoch)
/// through philox; an index that lands at count or above is sent through again until it lands below, which keeps the
/// map one-to-one (cycle walking; under four passes on average, since the domain is below 4 count).
class SampleOrder {
 public:
  /// @param count  1 or more
  SampleOrder(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

  /// The sample at place `index`, 0 <= index < count, of the epoch.
  std::int64_t operator[](std::int64_t index) const;

 private:
  std::uint64_t encipher(std::uint64_t value) const;

  std::uint64_t count_;
  std::uint64_t seed_;
  std::uint64_t epoch_;
  unsigned half_bits_;
};

}  // namespace penstock
