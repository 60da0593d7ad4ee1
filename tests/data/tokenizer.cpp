// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.hpp"
#include "support/temporary_directory.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string decode(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  return tokenizer.decode(ids);
}

TEST(ByteTokenizer, ReadsBackEveryByte) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const ByteTokenizer tokenizer;

  const auto ids = tokenizer.encode(text);

  EXPECT_EQ(ids, counting(256));
  EXPECT_EQ(decode(tokenizer, ids), text);
  EXPECT_EQ(tokenizer.vocabulary(), 256);
  EXPECT_EQ(tokenizer.end_of_text(), 0);
}

TEST(ByteTokenizer, ShowsIdsThatAreNoBytes) {
  EXPECT_EQ(decode(ByteTokenizer{}, {'a', 256, 'b', -1}), "a<256>b<-1>");
}

TEST(NumberTokenizer, ReadsBackIds) {
  const NumberTokenizer tokenizer;

  EXPECT_EQ(decode(tokenizer, {50256, 0, 7}), "<50256><0><7>");
  EXPECT_THAT(tokenizer.encode("<50256><0><7>"), ElementsAre(50256, 0, 7));
  EXPECT_EQ(tokenizer.vocabulary(), std::nullopt);
}

TEST(NumberTokenizer, RefusesWhatIsNoId) {
  for (const char* text : {"Hello", "<1", "<>", "<1>x", "<-1>", "<2147483648>", "<1> <2>", "<"}) {
    EXPECT_THAT(error_of(ExitCode::bad_input, [&] { NumberTokenizer{}.encode(text); }),
                HasSubstr("token ids in angle brackets"))
        << text;
  }
}

std::string tokenizer_file(std::int32_t count, std::int32_t end, const std::vector<std::string>& tokens) {
  std::string file = llmc_header(20240328, 2, count, end);
  for (const std::string& token : tokens) file += static_cast<char>(static_cast<unsigned char>(token.size())) + token;
  return file;
}

TEST(LlmcTokenizer, DecodesTheTokensOfItsFile) {
  const std::string file = tokenizer_file(4, 3, {"He", "llo", std::string(255, 'x'), "<|endoftext|>"});
  const LlmcTokenizer tokenizer{view(file), "gpt2.bin"};

  EXPECT_EQ(decode(tokenizer, {0, 1, 3, 9}), "Hello<|endoftext|><9>");
  EXPECT_EQ(decode(tokenizer, {2}).size(), 255U);
  EXPECT_EQ(tokenizer.vocabulary(), 4);
  EXPECT_EQ(tokenizer.end_of_text(), 3);
  EXPECT_THAT(tokenizer.encode("<3>"), ElementsAre(3));
  EXPECT_THROW(tokenizer.encode("Hello"), Error);
}

std::string tokenizer_error(const std::string& file) {
  return error_of(ExitCode::damaged_input, [&] { LlmcTokenizer(view(file), "t.bin"); });
}

TEST(LlmcTokenizer, NamesWhatIsWrongWithItsFile) {
  const std::string good = tokenizer_file(2, 1, {"a", "bc"});
  EXPECT_THAT(tokenizer_error(good.substr(0, 100)), HasSubstr("100 bytes"));
  EXPECT_THAT(tokenizer_error(good.substr(0, good.size() - 1)), HasSubstr("ends in token 1"));
  EXPECT_THAT(tokenizer_error(good.substr(0, 1024)), HasSubstr("ends in token 0"));
  EXPECT_THAT(tokenizer_error(good + "x"), HasSubstr("1 byte more than the 2 tokens that the header says"));
  EXPECT_THAT(tokenizer_error(tokenizer_file(0, 0, {})), HasSubstr("says 0 tokens"));
  EXPECT_THAT(tokenizer_error(tokenizer_file(1, 1, {"a"})), HasSubstr("token 1 ends a text"));
  EXPECT_THAT(tokenizer_error(tokenizer_file(2147483647, 1, {"a"})), HasSubstr("ends in token 1"));
  EXPECT_THAT(tokenizer_error(llmc_header(20240328, 1, 1)), HasSubstr("expected 20240328 and 2"));
  EXPECT_THAT(tokenizer_error(llmc_shard<std::uint16_t>({1})), HasSubstr("begins with 20240520"));
}

TEST(MakeTokenizer, TakesTheNamesOfADeck) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("gpt2.bin", tokenizer_file(1, 0, {"a"}));

  EXPECT_EQ(make_tokenizer("bytes")->name(), "bytes");
  EXPECT_EQ(make_tokenizer("none")->name(), "none");
  EXPECT_EQ(make_tokenizer(path)->name(), path);
  EXPECT_THAT(error_of(ExitCode::bad_input, [] { make_tokenizer("gpt2"); }),
              HasSubstr("gpt2: no such tokenizer; it takes bytes"));
  EXPECT_THAT(error_of(ExitCode::bad_input, [] { make_tokenizer("no.bin"); }), HasSubstr("no such file"));
}

TEST(MakeTokenizer, TakesOnlyNamesOfTheRightForm) {
  for (const char* name : {"bytes", "none", "folder/gpt2_tokenizer.bin"}) EXPECT_TRUE(is_tokenizer_name(name)) << name;
  for (const char* name : {"", "byte", "gpt2", "tokenizer.json"}) EXPECT_FALSE(is_tokenizer_name(name)) << name;
}

TEST(PromptTokens, AreThoseOfTheTokenizer) {
  EXPECT_THAT(prompt_tokens(ByteTokenizer{}, "ab", 256, "--prompt"), ElementsAre('a', 'b'));
  EXPECT_THAT(prompt_tokens(NumberTokenizer{}, "<5><0>", 6, "--prompt"), ElementsAre(5, 0));
}

TEST(PromptTokens, RefuseWhatTheModelCannotRead) {
  const auto refusal = [](const Tokenizer& tokenizer, const char* prompt, std::int32_t vocabulary) {
    return error_of(ExitCode::bad_input, [&] { prompt_tokens(tokenizer, prompt, vocabulary, "--prompt"); });
  };

  EXPECT_THAT(refusal(ByteTokenizer{}, "", 256), HasSubstr("--prompt is empty"));
  EXPECT_THAT(refusal(ByteTokenizer{}, "ab", 98), HasSubstr("--prompt `ab`: its token 98 is outside the model's "
                                                            "vocabulary: 0 to 97"));
  EXPECT_THAT(refusal(NumberTokenizer{}, "The ", 256), HasSubstr("--prompt `The `: tokenizer none cannot turn text"));
}

}  // namespace
}  // namespace penstock
