// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// "1 rank", "0 ranks", "2 ranks": a number with its noun, which takes an s unless `plural` says otherwise ("entries").
std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = {});

}  // namespace penstock
