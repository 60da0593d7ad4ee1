// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace penstock {

/// Four random 32-bit words from a counter and a key: Philox 4x32 with 10 rounds (Salmon et al., "Parallel random
/// numbers: as easy as 1, 2, 3", SC 2011). No state: the same counter and key give the same words on every rank and
/// thread.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// What a stream of random numbers is for; streams with different purposes never meet.
enum class RandomPurpose : std::uint32_t {
  initialization = 1,
  sample_order = 2,
  text_sampling = 3,
  delays = 4,
  tests = 5
};

/// Random numbers addressed by (seed, purpose, stream, position): any of them can be drawn without the ones before.
class CounterRandom {
 public:
  constexpr CounterRandom(std::uint64_t seed, RandomPurpose purpose, std::uint64_t stream)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)},
        stream_{stream},
        purpose_{static_cast<std::uint32_t>(purpose)} {}

  /// Four words at `position` (up to 2^32 - 1 with streams up to 2^56 - 1).
  constexpr std::array<std::uint32_t, 4> words(std::uint64_t position) const {
    return philox(
        {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32U) ^ (purpose_ << 24U),
         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32U)},
        key_);
  }

  /// Uniform in [0, 1), 53 bits.
  constexpr double uniform(std::uint64_t position) const {
    const auto word = words(position);
    return static_cast<double>(((std::uint64_t{word[0]} << 32U) | word[1]) >> 11U) * 0x1p-53;
  }

  /// Standard normal (Box-Muller, one of the pair, in double).
  double normal(std::uint64_t position) const {
    const auto word = words(position);
    const double u = (static_cast<double>(((std::uint64_t{word[0]} << 32U) | word[1]) >> 11U) + 1.0) * 0x1p-53;
    const double angle = static_cast<double>(((std::uint64_t{word[2]} << 32U) | word[3]) >> 11U) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * angle);
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
  std::uint32_t purpose_;
};

}  // namespace penstock
