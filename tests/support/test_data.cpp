// SPDX-License-Identifier: Apache-2.0
#include "support/test_data.hpp"

#include <bit>
#include <cmath>

#include "base/random.hpp"

namespace penstock::test {
namespace {

CounterRandom stream_of(std::uint64_t stream) {
  return CounterRandom{0, RandomPurpose::tests, stream};
}

/// value(i) for each i in [0, count).
template <class T, class Function>
std::vector<T> generate(std::int64_t count, Function value) {
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values.push_back(value(static_cast<std::uint64_t>(i)));
  return values;
}

}  // namespace

std::vector<double> normal_values(std::int64_t count, std::uint64_t stream) {
  return generate<double>(count, [random = stream_of(stream)](std::uint64_t i) { return random.normal(i); });
}

std::vector<float> normal_floats(std::int64_t count, std::uint64_t stream) {
  return generate<float>(
      count, [random = stream_of(stream)](std::uint64_t i) { return static_cast<float>(random.normal(i)); });
}

std::vector<std::int32_t> uniform_integers(std::int64_t count, std::int32_t bound, std::uint64_t stream) {
  return generate<std::int32_t>(count, [random = stream_of(stream), bound](std::uint64_t i) {
    return static_cast<std::int32_t>(random.uniform(i) * bound);
  });
}

std::vector<std::byte> random_bytes(std::int64_t count, std::uint64_t stream) {
  return generate<std::byte>(
      count, [random = stream_of(stream)](std::uint64_t i) { return std::byte(random.words(i)[0] & 0xFFU); });
}

std::uint16_t to_bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // stays a NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

float from_bf16_bits(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

std::vector<std::uint16_t> to_bf16_bits(const std::vector<float>& values) {
  return generate<std::uint16_t>(static_cast<std::int64_t>(values.size()),
                                 [&](std::uint64_t i) { return to_bf16_bits(values[i]); });
}

}  // namespace penstock::test
