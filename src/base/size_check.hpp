// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

/// @throws Error bad_input unless `value` is at least 1; `key` is what the user calls it
void check_at_least_one(std::string_view key, std::int32_t value);

}  // namespace penstock
