// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::config {

/// The one of `known` that `word` was most likely meant to be: the fewest letters changed, left out, added or swapped,
/// at most a third of the word (capitals and `-` for `_` count as equal); empty if none is that near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

/// `text` for a message: control characters escaped, cut after 60 characters.
std::string shown(std::string_view text);

/// "a, b, c".
std::string listed(const std::vector<std::string>& words);

}  // namespace penstock::config
