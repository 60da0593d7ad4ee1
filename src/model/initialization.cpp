// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "base/error.hpp"
#include "base/random.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

// The random stream of a parameter: FNV-1a, 64 bits, of its canonical name, folded to the 56 bits that a stream may
// have.
std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  constexpr std::uint64_t mask = (std::uint64_t{1} << 56U) - 1;
  return (hash >> 56U) ^ (hash & mask);
}

}  // namespace

void initialize(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::int64_t count, float* out) {
  require(first >= 0 && count >= 0 && first + count <= parameter.size(),
          "initialization: elements {} to {} of {}, which has {}", first, first + count, parameter.name,
          parameter.size());
  const CounterRandom random{seed, RandomPurpose::initialization, stream_of(parameter.name)};
  for (std::int64_t i = 0; i < count; ++i) {
    const double spread = parameter.init_deviation > 0
                              ? parameter.init_deviation * random.normal(static_cast<std::uint64_t>(first + i))
                              : 0.0;
    out[i] = static_cast<float>(parameter.init_constant + spread);
  }
}

}  // namespace penstock
