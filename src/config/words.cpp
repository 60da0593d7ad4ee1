// SPDX-License-Identifier: Apache-2.0
#include "config/words.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include <fmt/format.h>

namespace penstock::config {
namespace {

constexpr std::size_t longest_shown = 60;
constexpr std::size_t longest_compared = 64;

std::string plain(std::string_view word) {
  std::string lower;
  for (const char c : word) {
    lower += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower;
}

/// Letters to change, drop, add or swap with their neighbour to turn `a` into `b` (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > longest_compared) return {};
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(plain(word), plain(candidate));
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, longest_shown)) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  // A cut inside a character would leave half of it: drop what follows its first byte.
  if (text.size() > longest_shown) {
    while (!result.empty() && (static_cast<unsigned char>(result.back()) & 0xC0U) == 0x80U) result.pop_back();
    if (!result.empty() && static_cast<unsigned char>(result.back()) >= 0xC0U) result.pop_back();
    result += "...";
  }
  return result;
}

std::string listed(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace penstock::config
