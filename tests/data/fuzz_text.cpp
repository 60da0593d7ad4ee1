// SPDX-License-Identifier: Apache-2.0
// Documents of any bytes are joined if they are text, and forgotten if not; an independent decoder says which is which.
// The byte 0xFE, which no text contains, separates the documents of the input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text.hpp"
#include "data/tokenizer.hpp"
#include "data/tokens.hpp"

namespace {

/// Decodes by shifting bits and compares the code point with the smallest of its length: another way than the table's.
bool is_text(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC0 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF8 ? 4
                                             : 0;
    if (length == 0 || at + length > bytes.size()) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(bytes[at + i]);
      if (next < 0x80 || next > 0xBF) return false;
      code = (code << 6U) | (next & 0x3FU);
    }
    constexpr std::uint32_t smallest[] = {0, 1, 0x80, 0x800, 0x10000};
    if (code < smallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
    at += length;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  std::string_view rest{reinterpret_cast<const char*>(data), size};
  TextBuilder builder;
  std::string expected;
  bool first = true;
  while (!rest.empty()) {
    const std::string_view document = rest.substr(0, rest.find('\xFE'));
    rest.remove_prefix(std::min(rest.size(), document.size() + 1));
    const auto bad = builder.add("document", [&](std::string& text) { text += document; });
    if (bad.has_value() == is_text(document)) std::abort();
    if (bad && !is_text(document.substr(0, static_cast<std::size_t>(*bad)))) std::abort();
    if (bad || document.empty()) continue;
    if (!first) expected += '\0';
    first = false;
    expected += document;
  }
  const TokenSource source = builder.finish();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
  source.read(0, ids, ByteTokenizer::size);
  if (ByteTokenizer{}.decode(ids) != expected) std::abort();
  return 0;
}
