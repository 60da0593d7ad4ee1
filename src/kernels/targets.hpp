// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace penstock {

/// A target that counts, but whose logit is among the columns of another call: the vocabulary is cut.
inline constexpr std::int32_t target_elsewhere = std::numeric_limits<std::int32_t>::min();

}  // namespace penstock
