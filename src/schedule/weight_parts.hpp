// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock {

/// Into how many parts a W may be cut: what an action's number can say.
inline constexpr std::int32_t most_weight_parts = 255;

/// The parts of a W of so many matrix products at the finest grain: one each, as far as their numbers go.
constexpr std::uint8_t finest_weight_parts(std::int64_t products) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(products, 1, most_weight_parts));
}

/// Some of the matrix products of a W, numbered from 0 as the backward pass comes to them: the head's first, then those
/// of the last layer.
struct ProductRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What part 1, 2, ... of `parts` has of `products`: as equal numbers as can be, each once. @pre part <= parts
constexpr ProductRange products_of_part(std::int64_t part, std::int64_t parts, std::int64_t products) {
  return {(part - 1) * products / parts, part * products / parts};
}

}  // namespace penstock
