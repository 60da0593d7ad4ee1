// SPDX-License-Identifier: Apache-2.0
#include "data/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.hpp"
#include "data/utf8.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::Optional;

std::string utf8_of(std::uint32_t code) {
  const auto part = [&](unsigned shift) { return static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0U | (code >> 6U)), part(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0U | (code >> 12U)), part(6), part(0)};
  return {static_cast<char>(0xF0U | (code >> 18U)), part(12), part(6), part(0)};
}

TEST(FirstNonText, AcceptsEveryCharacterAndRefusesEverySurrogate) {
  for (std::uint32_t code = 1; code <= 0x10FFFF; ++code) {
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(first_non_text(utf8_of(code)).has_value(), surrogate) << code;
  }
}

/// The two-byte strings that are text can be counted: 127 x 127 of ASCII, and the characters U+0080 to U+07FF.
TEST(FirstNonText, AcceptsExactlyTheWellFormedPairs) {
  int accepted = 0;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) accepted += !first_non_text(std::string{static_cast<char>(a), static_cast<char>(b)});
  }

  EXPECT_EQ(accepted, 127 * 127 + (0x800 - 0x80));
}

/// Likewise with three: 127^3, a pair and ASCII in either order, and U+0800 to U+FFFF without the 2048 surrogates.
TEST(FirstNonText, AcceptsExactlyTheWellFormedTriples) {
  int accepted = 0;
  std::string text(3, ' ');
  for (int code = 0; code < 1 << 24; ++code) {
    for (unsigned i = 0; i < 3; ++i) text[i] = static_cast<char>((code >> (8 * i)) & 0xFF);
    accepted += !first_non_text(text);
  }

  EXPECT_EQ(accepted, 127 * 127 * 127 + 2 * 127 * (0x800 - 0x80) + (0x10000 - 0x800 - 0x800));
}

TEST(FirstNonText, GivesTheOffsetOfTheFirstBadByteOrCharacter) {
  EXPECT_EQ(first_non_text(""), std::nullopt);
  EXPECT_THAT(first_non_text("abc\xFF"), Optional(3));
  EXPECT_THAT(first_non_text(std::string_view{"ab\0d", 4}), Optional(2));
  EXPECT_THAT(first_non_text("\xC0\xAF"), Optional(0));           // an overlong slash
  EXPECT_THAT(first_non_text("\xE0\x80\xAF"), Optional(0));       // another
  EXPECT_THAT(first_non_text("\xF0\x80\x80\xAF"), Optional(0));   // another
  EXPECT_THAT(first_non_text("a\xED\xA0\x80"), Optional(1));      // a surrogate
  EXPECT_THAT(first_non_text("a\xF4\x90\x80\x80"), Optional(1));  // U+110000
  EXPECT_THAT(first_non_text("0123456\xE2\x82"), Optional(7));    // a euro sign cut short
  EXPECT_THAT(first_non_text("0123456\xE2\x82 "), Optional(7));
  EXPECT_THAT(first_non_text("\x80"), Optional(0));
}

/// The fast path takes eight bytes at a time: a fault must be found at every distance from its borders.
TEST(FirstNonText, FindsAFaultAtEveryOffset) {
  for (std::size_t size = 1; size < 40; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      for (const char fault : {'\0', '\x80', '\xFF'}) {
        std::string text(size, '\x7F');
        text[at] = fault;
        ASSERT_THAT(first_non_text(text), Optional(static_cast<std::int64_t>(at))) << size;
      }
    }
  }
}

std::optional<std::int64_t> add(TextBuilder& builder, const std::string& name, std::string_view content) {
  return builder.add(name, [&](std::string& text) { text += content; });
}

TEST(TextBuilder, JoinsDocumentsByOneZeroByte) {
  TextBuilder builder;
  add(builder, "a", "ab");
  add(builder, "b", "\xC3\xA9");

  const auto source = builder.finish();

  EXPECT_THAT(ids_of(source), ElementsAre('a', 'b', 0, 0xC3, 0xA9));
  EXPECT_EQ(source.id_bound(), 256);
  EXPECT_EQ(source.place(2), "a, byte 2");
  EXPECT_EQ(source.place(3), "b, byte 0");
}

TEST(TextBuilder, LeavesNoTraceOfEmptyAndBadDocuments) {
  TextBuilder builder;
  EXPECT_EQ(add(builder, "empty", ""), std::nullopt);
  EXPECT_THAT(add(builder, "bad", "xy\xFF"), Optional(2));
  EXPECT_EQ(builder.size(), 0);
  add(builder, "a", "a");
  EXPECT_EQ(add(builder, "empty", ""), std::nullopt);
  EXPECT_THAT(add(builder, "bad", "x\xFF"), Optional(1));
  add(builder, "b", "b");
  EXPECT_EQ(add(builder, "empty", ""), std::nullopt);

  EXPECT_THAT(ids_of(builder.finish()), ElementsAre('a', 0, 'b'));
}

/// A character may not begin in one document and end in the next.
TEST(TextBuilder, ChecksEachDocumentByItself) {
  TextBuilder builder;
  EXPECT_THAT(add(builder, "a", "\xC3"), Optional(0));
  EXPECT_THAT(add(builder, "b", "\xA9"), Optional(0));
  EXPECT_EQ(builder.finish().size(), 0);
}

}  // namespace
}  // namespace penstock
