// SPDX-License-Identifier: Apache-2.0
#include "data/megatron.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.hpp"
#include "data/open.hpp"
#include "support/temporary_directory.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string six_ints = bytes_of_numbers(std::vector<std::int32_t>{1, 2, 3, 4, 5, 100000});

MegatronIndex three_sequences() {
  return MegatronIndex::of({1, 3, 2}, 4, 4);
}

std::string megatron_error(const MegatronIndex& index, const std::string& bin = six_ints) {
  return error_of(ExitCode::damaged_input, [&] { parse_megatron(view(index.bytes()), view(bin), "p"); });
}

TEST(ParseMegatron, ReadsTheSequencesInOrder) {
  const auto data = parse_megatron(view(three_sequences().bytes()), view(six_ints), "p");

  EXPECT_EQ(data.sequences, 3);
  EXPECT_EQ(data.documents, 3);
  EXPECT_EQ(data.tokens.name, "p.bin");
  EXPECT_THAT(ids_of(TokenSource{{data.tokens}, nullptr}), ElementsAre(1, 2, 3, 4, 5, 100000));
}

template <class Number>
void expect_type(std::uint8_t code, TokenType type) {
  const std::string bin = bytes_of_numbers(std::vector<Number>{3, 100, 7});
  const auto index = MegatronIndex::of({2, 1}, code, sizeof(Number));

  const auto data = parse_megatron(view(index.bytes()), view(bin), "p");

  EXPECT_EQ(data.tokens.type, type);
  EXPECT_THAT(ids_of(TokenSource{{data.tokens}, nullptr}), ElementsAre(3, 100, 7));
}

TEST(ParseMegatron, ReadsEveryIntegerType) {
  expect_type<std::uint8_t>(1, TokenType::uint8);
  expect_type<std::int8_t>(2, TokenType::int8);
  expect_type<std::int16_t>(3, TokenType::int16);
  expect_type<std::int32_t>(4, TokenType::int32);
  expect_type<std::int64_t>(5, TokenType::int64);
  expect_type<std::uint16_t>(8, TokenType::uint16);
}

TEST(ParseMegatron, TakesEmptySequencesAndDocumentsOfSeveral) {
  auto index = MegatronIndex::of({0, 6, 0}, 4, 4);
  index.borders = {0, 2, 3};

  const auto data = parse_megatron(view(index.bytes()), view(six_ints), "p");

  EXPECT_EQ(data.sequences, 3);
  EXPECT_EQ(data.documents, 2);
  EXPECT_EQ(data.tokens.size(), 6);
}

TEST(ParseMegatron, TakesModesOfTextOnly) {
  auto index = three_sequences();
  index.modes = std::string(3, '\0');
  EXPECT_EQ(parse_megatron(view(index.bytes()), view(six_ints), "p").tokens.size(), 6);

  index.modes[1] = 2;
  EXPECT_THAT(megatron_error(index), HasSubstr("p.idx: sequence 1 has mode 2"));
}

TEST(ParseMegatron, NamesWhatIsWrongWithAHeader) {
  auto index = three_sequences();
  index.magic[0] = 'X';
  EXPECT_THAT(megatron_error(index), HasSubstr("p.idx: no Megatron index: it does not begin with MMIDIDX"));

  index = three_sequences();
  index.version = 2;
  EXPECT_THAT(megatron_error(index), HasSubstr("version 2"));

  index.version = 1;
  index.type = 7;
  EXPECT_THAT(megatron_error(index), HasSubstr("float32"));
  index.type = 6;
  EXPECT_THAT(megatron_error(index), HasSubstr("float64"));
  index.type = 0;
  EXPECT_THAT(megatron_error(index), HasSubstr("type code 0"));
  index.type = 9;
  EXPECT_THAT(megatron_error(index), HasSubstr("type code 9"));
}

/// The last two counts give the right size again if 12 or 8 times them wraps around.
TEST(ParseMegatron, RefusesCountsThatDoNotFillTheIndex) {
  const std::string good = three_sequences().bytes();
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{4}, ~std::uint64_t{0}, std::uint64_t{1} << 63U,
        ~std::uint64_t{0} / 12 + 2, (std::uint64_t{1} << 62U) + 3, (std::uint64_t{1} << 61U) + 4}) {
    for (const std::size_t at : {std::size_t{18}, std::size_t{26}}) {
      if (count == 4 && at == 26) continue;  // that is what it says
      std::string bad = good;
      bad.replace(at, 8, bytes_of_numbers(std::vector{count}));
      EXPECT_THAT(error_of(ExitCode::damaged_input, [&] { parse_megatron(view(bad), view(six_ints), "p"); }),
                  HasSubstr(std::to_string(count)));
    }
  }
}

TEST(ParseMegatron, RefusesEveryTruncationOfTheIndex) {
  const std::string good = three_sequences().bytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(parse_megatron(view(good).first(size), view(six_ints), "p"), Error) << size;
  }
}

TEST(ParseMegatron, ComparesLengthsOffsetsAndTheBin) {
  auto index = three_sequences();
  index.lengths[1] = -3;
  EXPECT_THAT(megatron_error(index), HasSubstr("sequence 1 has the length -3"));

  index = three_sequences();
  index.offsets[1] = 8;
  EXPECT_THAT(megatron_error(index),
              HasSubstr("sequence 1 should begin at byte 4, where the one before ends, but the index says 8"));

  EXPECT_THAT(megatron_error(three_sequences(), six_ints + "abcd"),
              HasSubstr("p.bin: 28 bytes, but p.idx lists 6 int32 tokens, 24"));
  EXPECT_THAT(megatron_error(three_sequences(), six_ints.substr(0, 23)), HasSubstr("cut short"));
}

TEST(ParseMegatron, ChecksTheDocumentBorders) {
  auto index = three_sequences();
  index.borders = {0, 1, 2};
  EXPECT_THAT(megatron_error(index), HasSubstr("the last document should end at sequence 3, but the index says 2"));
  index.borders = {0, 2, 1, 3};
  EXPECT_THAT(megatron_error(index), HasSubstr("document border 2 is sequence 1, after 2"));
  index.borders = {-1, 3};
  EXPECT_THAT(megatron_error(index), HasSubstr("sequence -1"));
  index.borders = {};
  EXPECT_THAT(megatron_error(index), HasSubstr("the index says nothing"));
}

TEST(OpenMegatron, ReadsAPrefix) {
  const test::TemporaryDirectory folder;
  folder.write("corpus_text_document.idx", three_sequences().bytes());
  folder.write("corpus_text_document.bin", six_ints);

  const auto data = open_data({folder / "corpus_text_document"}, {});

  EXPECT_EQ(data.summary.kind, DataKind::megatron);
  EXPECT_EQ(data.tokens->size(), 6);
}

TEST(OpenMegatron, RefusesNegativeIdsWhenTheyAreRead) {
  const test::TemporaryDirectory folder;
  folder.write("p.idx", MegatronIndex::of({3}, 4, 4).bytes());
  folder.write("p.bin", bytes_of_numbers(std::vector<std::int32_t>{1, -2, 3}));
  const auto data = open_data({folder / "p"}, {});

  EXPECT_THAT(error_of(ExitCode::damaged_input, [&] { ids_of(*data.tokens); }),
              HasSubstr("p.bin, token 1: the value -2"));
}

}  // namespace
}  // namespace penstock
