// SPDX-License-Identifier: Apache-2.0
#include "data/utf8.hpp"

#include <cstddef>
#include <cstring>

namespace penstock {
namespace {

/// Well-formed characters of more than one byte that begin with a lead byte: their length, and the range of the second
/// byte.
struct Form {
  std::size_t length;  ///< 0: no character begins so
  unsigned char second_lowest;
  unsigned char second_highest;
};

constexpr Form form_of(unsigned char lead) {
  if (lead < 0xC2) return {0, 0, 0};  // a continuation byte, or an overlong form of ASCII
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};  // below: overlong
  if (lead == 0xED) return {3, 0x80, 0x9F};  // above: surrogates
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};  // below: overlong
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};  // above: past U+10FFFF
  return {0, 0, 0};
}

constexpr bool is_continuation(unsigned char byte) {
  return (byte & 0xC0U) == 0x80U;
}

/// Length of the character at the front of `bytes`, whose first byte is no ASCII; 0 when it is malformed or cut short.
std::size_t character_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const Form form = form_of(at(0));
  if (form.length == 0 || bytes.size() < form.length) return 0;
  if (at(1) < form.second_lowest || at(1) > form.second_highest) return 0;
  for (std::size_t i = 2; i < form.length; ++i)
    if (!is_continuation(at(i))) return 0;
  return form.length;
}

/// Whether the eight bytes at `bytes` are ASCII other than zero.
bool eight_plain(const char* bytes) {
  constexpr std::uint64_t ones = 0x0101010101010101U;
  constexpr std::uint64_t highs = 0x8080808080808080U;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  // Without high bits in the word, subtracting one from each byte borrows into a high bit only from a zero byte.
  return ((word | (word - ones)) & highs) == 0;
}

}  // namespace

std::optional<std::int64_t> first_non_text(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    if (bytes.size() - at >= 8 && eight_plain(bytes.data() + at)) {
      at += 8;
      continue;
    }
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const std::size_t length = lead >= 0x80 ? character_length(bytes.substr(at)) : std::size_t{lead != 0};
    if (length == 0) return static_cast<std::int64_t>(at);
    at += length;
  }
  return std::nullopt;
}

}  // namespace penstock
