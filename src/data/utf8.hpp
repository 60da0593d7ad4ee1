// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

/// The offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no
/// surrogates, nothing above U+10FFFF), or that is zero, which no text file contains and which separates documents
/// here. For a character that is cut short or wrong inside, the offset of its first byte. Empty when the whole is text.
std::optional<std::int64_t> first_non_text(std::string_view bytes);

}  // namespace penstock
