// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/describe.hpp"

namespace penstock {

/// Who attends to the keys of a slice when all ranks work in lockstep (SlimPipe's attention context exchange).
enum class Exchange : std::uint8_t {
  none,      ///< each rank to those of its own slice
  pairwise,  ///< the rank with the k-th shortest and the one with the k-th longest share theirs, in whole slices
  global     ///< all ranks share all
};

constexpr std::array<EnumName<Exchange>, 3> enum_names(Exchange) {
  return {{{Exchange::none, "none"}, {Exchange::pairwise, "pairwise"}, {Exchange::global, "global"}}};
}

}  // namespace penstock
