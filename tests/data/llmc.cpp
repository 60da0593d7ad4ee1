// SPDX-License-Identifier: Apache-2.0
#include "data/llmc.hpp"

#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "data/data_files.hpp"
#include "data/open.hpp"
#include "support/temporary_directory.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string llmc_error(const std::string& bytes) {
  return error_of(ExitCode::damaged_input, [&] { parse_llmc(view(bytes), "x.bin"); });
}

TEST(ParseLlmc, ReadsBothKinds) {
  const std::string gpt2 = llmc_shard<std::uint16_t>({50256, 0, 65535});
  const std::string llama3 = llmc_shard<std::uint32_t>({128000, 5});

  EXPECT_THAT(ids_of(TokenSource{{parse_llmc(view(gpt2), "x")}, nullptr}), ElementsAre(50256, 0, 65535));
  EXPECT_THAT(ids_of(TokenSource{{parse_llmc(view(llama3), "x")}, nullptr}), ElementsAre(128000, 5));
}

TEST(ParseLlmc, ReadsAShardWithoutTokens) {
  EXPECT_EQ(parse_llmc(view(llmc_shard<std::uint16_t>({})), "x").size(), 0);
}

TEST(ParseLlmc, NamesWhatIsWrongWithAHeader) {
  EXPECT_THAT(llmc_error(""),
              HasSubstr("x.bin: no llm.c token file: it has 0 bytes, its header alone should have 1024"));
  EXPECT_THAT(llmc_error(std::string(1023, ' ')), HasSubstr("1023 bytes"));
  EXPECT_THAT(llmc_error(llmc_header(20240326, 3, 0)),
              HasSubstr("begins with 20240326 (a model); token files begin with"));
  EXPECT_THAT(llmc_error(llmc_header(7, 1, 0)), HasSubstr("begins with 7; "));
  EXPECT_THAT(llmc_error(llmc_header(20240520, 2, 0)), HasSubstr("version 2 of llm.c's uint16 token files"));
  EXPECT_THAT(llmc_error(llmc_header(20240801, 1, 0)), HasSubstr("this program reads version 7"));
  EXPECT_THAT(llmc_error(llmc_header(20240520, 1, -3)), HasSubstr("says -3 tokens"));
}

TEST(ParseLlmc, RefusesSizesThatTheHeaderDoesNotSay) {
  std::string shard = llmc_shard<std::uint16_t>({1, 2, 3});
  shard.pop_back();

  EXPECT_THAT(llmc_error(shard),
              HasSubstr("3 uint16 tokens, so 6 bytes should follow it, but 5 do; the file was cut short"));
  EXPECT_THAT(llmc_error(shard + "abc"), HasSubstr("but 8 do"));
}

/// Every length of a shard but the whole is refused.
TEST(ParseLlmc, RefusesEveryTruncation) {
  const std::string shard = llmc_shard<std::uint32_t>({1, 2, 3});

  for (std::size_t size = 0; size < shard.size(); ++size)
    EXPECT_THROW(parse_llmc(view(shard).first(size), "x"), Error) << size;
}

/// A file of `tokens` whose body is a hole but for the last token.
template <class Number>
std::string sparse_shard(const test::TemporaryDirectory& folder, std::int64_t tokens, std::int32_t announced,
                         Number last) {
  const std::string header =
      sizeof(Number) == 2 ? llmc_header(20240520, 1, announced) : llmc_header(20240801, 7, announced);
  std::string path = folder.write("sparse.bin", header);
  const off_t size = 1024 + tokens * static_cast<off_t>(sizeof(Number));
  const int file = ::open(path.c_str(), O_WRONLY);
  EXPECT_EQ(::ftruncate(file, size), 0);
  EXPECT_EQ(::pwrite(file, &last, sizeof last, size - static_cast<off_t>(sizeof last)),
            static_cast<ssize_t>(sizeof last));
  ::close(file);
  return path;
}

TEST(OpenLlmc, ReadsTheEndOfAFileOverTwoGibibytes) {
  const test::TemporaryDirectory folder;
  const std::int32_t tokens = 600'000'000;
  const auto data = open_data({sparse_shard<std::uint32_t>(folder, tokens, tokens, 128255)}, {});

  EXPECT_EQ(data.tokens->size(), tokens);
  EXPECT_GT(data.summary.bytes(), Bytes{std::int64_t{2} << 30});
  EXPECT_THAT(ids_of(*data.tokens, tokens - 2), ElementsAre(0, 128255));
}

TEST(OpenLlmc, ReadsPositionsAboveTwoToThe31AcrossShards) {
  const test::TemporaryDirectory folder;
  const std::int32_t tokens = 2'000'000'000;
  const std::string first = sparse_shard<std::uint16_t>(folder, tokens, tokens, 17);
  const std::string second = folder.write("second.bin", llmc_shard<std::uint16_t>(std::vector<std::uint16_t>(4, 3)));
  std::filesystem::rename(first, folder / "a.bin");
  const std::string third = sparse_shard<std::uint16_t>(folder, tokens, tokens, 18);

  const auto data = open_data({folder / "a.bin", second, third}, {});

  EXPECT_EQ(data.tokens->size(), 4'000'000'004);
  EXPECT_THAT(ids_of(*data.tokens, 1'999'999'999, 2), ElementsAre(17, 3));
  EXPECT_THAT(ids_of(*data.tokens, 4'000'000'003), ElementsAre(18));
}

TEST(OpenLlmc, SaysThatAHeaderCannotAnnounceMoreThanTwoToThe31) {
  const test::TemporaryDirectory folder;
  const std::string path = sparse_shard<std::uint16_t>(folder, std::int64_t{3} << 30, 0, 1);

  EXPECT_THAT(error_of(ExitCode::damaged_input, [&] { open_data({path}, {}); }), HasSubstr("write several shards"));
}

}  // namespace
}  // namespace penstock
