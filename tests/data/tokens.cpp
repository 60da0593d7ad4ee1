// SPDX-License-Identifier: Apache-2.0
#include "data/tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// One array over bytes that outlive it.
template <class Number>
TokenSource source_over(const std::string& bytes, TokenType type) {
  return {{{"file", type, view(bytes)}}, nullptr};
}

template <class Number>
void expect_ids_at_the_limits(TokenType type, std::int32_t largest) {
  const std::string bytes = bytes_of_numbers(std::vector<Number>{0, 7, static_cast<Number>(largest)});
  const auto source = source_over<Number>(bytes, type);

  EXPECT_THAT(ids_of(source), ElementsAre(0, 7, largest)) << name_of(type);
  EXPECT_EQ(source.id_bound(), std::int64_t{largest} + 1) << name_of(type);
}

TEST(TokenSource, ReadsEveryTypeUpToItsLargestId) {
  expect_ids_at_the_limits<std::uint8_t>(TokenType::uint8, 255);
  expect_ids_at_the_limits<std::int8_t>(TokenType::int8, 127);
  expect_ids_at_the_limits<std::int16_t>(TokenType::int16, 32767);
  expect_ids_at_the_limits<std::uint16_t>(TokenType::uint16, 65535);
  expect_ids_at_the_limits<std::int32_t>(TokenType::int32, 2147483647);
  expect_ids_at_the_limits<std::uint32_t>(TokenType::uint32, 2147483647);
  expect_ids_at_the_limits<std::int64_t>(TokenType::int64, 2147483647);
}

TEST(TokenSource, RefusesStoredValuesThatAreNoIds) {
  const auto text_of = [](const std::string& bytes, TokenType type) {
    return error_of(ExitCode::damaged_input, [&] { ids_of(source_over<int>(bytes, type)); });
  };

  EXPECT_THAT(text_of(bytes_of_numbers(std::vector<std::int8_t>{1, 2, -1}), TokenType::int8),
              HasSubstr("file, token 2: the value -1 is no token id"));
  EXPECT_THAT(text_of(bytes_of_numbers(std::vector<std::int16_t>{-32768}), TokenType::int16), HasSubstr("-32768"));
  EXPECT_THAT(text_of(bytes_of_numbers(std::vector<std::int32_t>{0, -5}), TokenType::int32), HasSubstr("token 1"));
  EXPECT_THAT(text_of(bytes_of_numbers(std::vector<std::uint32_t>{0x80000000U}), TokenType::uint32),
              HasSubstr("2147483648"));
  EXPECT_THAT(text_of(bytes_of_numbers(std::vector<std::int64_t>{std::int64_t{1} << 32}), TokenType::int64),
              HasSubstr("4294967296"));
}

TEST(TokenSource, JoinsFilesAndPassesOverEmptyOnes) {
  const std::string a = bytes_of_numbers(std::vector<std::uint16_t>{1, 2});
  const std::string b = bytes_of_numbers(std::vector<std::int32_t>{3, 70000, 5});
  const TokenSource source{{{"none", TokenType::uint8, {}},
                            {"a", TokenType::uint16, view(a)},
                            {"gap", TokenType::uint8, {}},
                            {"b", TokenType::int32, view(b)},
                            {"end", TokenType::uint8, {}}},
                           nullptr};

  EXPECT_EQ(source.size(), 5);
  EXPECT_THAT(ids_of(source), ElementsAre(1, 2, 3, 70000, 5));
  EXPECT_EQ(source.place(1), "a, token 1");
  EXPECT_EQ(source.place(2), "b, token 0");
}

TEST(TokenSource, ReadsAnyRangeAsAPartOfTheWhole) {
  const std::string a = bytes_of_numbers(std::vector<std::uint8_t>{1, 2, 3});
  const std::string b = bytes_of_numbers(std::vector<std::uint16_t>{4, 5});
  const TokenSource source{{{"a", TokenType::uint8, view(a)}, {"b", TokenType::uint16, view(b)}}, nullptr};
  const auto whole = ids_of(source);

  for (std::int64_t first = 0; first <= 5; ++first) {
    for (std::int64_t count = 0; first + count <= 5; ++count) {
      EXPECT_EQ(ids_of(source, first, count), std::vector(whole.begin() + first, whole.begin() + first + count));
    }
  }
}

TEST(TokenSource, ReadsAtOddAddresses) {
  const std::string bytes = "x" + bytes_of_numbers(std::vector<std::int64_t>{11, 12});
  const TokenSource source{{{"odd", TokenType::int64, view(bytes).subspan(1)}}, nullptr};

  EXPECT_THAT(ids_of(source), ElementsAre(11, 12));
}

TEST(TokenSource, NamesTheFirstTokenOutsideTheVocabulary) {
  const auto source = source_of({0, 49, 50, 51}, "shard.bin");
  std::vector<std::int32_t> out(3);

  const std::string text = error_of(ExitCode::damaged_input, [&] { source.read(1, out, 50); });
  EXPECT_THAT(text, HasSubstr("shard.bin, token 2: the token id 50 is outside the model's vocabulary of 50"));
  EXPECT_THAT(text, HasSubstr("at least 51"));
  EXPECT_NO_THROW(source.read(1, out, 52));
}

TEST(TokenSource, RefusesRangesOutsideTheStream) {
  const auto source = source_of({1, 2, 3}, "memory");
  std::vector<std::int32_t> out(2);

  EXPECT_THROW(source.read(2, out), Error);
  EXPECT_THROW(source.read(-1, out), Error);
  EXPECT_THROW(source.read(INT64_MAX, out), Error);
  EXPECT_NO_THROW(source.read(3, {}));
  EXPECT_NO_THROW(TokenSource{}.read(0, {}));
}

}  // namespace
}  // namespace penstock
