// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::test {

/// `count` standard normal numbers; the same for the same `stream` on every machine, rank and day.
std::vector<double> normal_values(std::int64_t count, std::uint64_t stream);
std::vector<float> normal_floats(std::int64_t count, std::uint64_t stream);

/// `count` whole numbers, uniform in [0, bound).
std::vector<std::int32_t> uniform_integers(std::int64_t count, std::int32_t bound, std::uint64_t stream);

/// `count` bytes of every value.
std::vector<std::byte> random_bytes(std::int64_t count, std::uint64_t stream);

/// The bits of a bf16 (rounded to nearest, ties to even), and the value of such bits.
std::uint16_t to_bf16_bits(float value);
float from_bf16_bits(std::uint16_t bits);
std::vector<std::uint16_t> to_bf16_bits(const std::vector<float>& values);

}  // namespace penstock::test
