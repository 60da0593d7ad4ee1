// SPDX-License-Identifier: Apache-2.0
#include "data/open.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.hpp"
#include "support/temporary_directory.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(OpenText, JoinsTheFilesOfAFolder) {
  const test::TemporaryDirectory folder;
  folder.write("a.md", "one");
  folder.write("b/c.md", "two");

  const auto data = open_data({folder.path().string()}, {});

  EXPECT_THAT(ids_of(*data.tokens), ElementsAre('o', 'n', 'e', 0, 't', 'w', 'o'));
  EXPECT_EQ(data.summary.tokens, 7);
  EXPECT_EQ(data.summary.bytes(), Bytes{6});
  EXPECT_THAT(data.summary.notes, IsEmpty());
  EXPECT_THAT(data.summary.warnings, IsEmpty());
  EXPECT_EQ(description_of(data.summary), "data.train: text, 2 files, 6 B, 7 tokens");
}

TEST(OpenText, LeavesOutBinaryFilesOfAFolderWithAWarning) {
  const test::TemporaryDirectory folder;
  folder.write("a.md", "one");
  folder.write("logo.png", "\x89PNG");
  folder.write("table.dat", std::string_view{"a\0b", 3});

  const auto data = open_data({folder.path().string()}, {});

  EXPECT_EQ(data.tokens->size(), 3);
  ASSERT_EQ(data.summary.warnings.size(), 1U);
  EXPECT_THAT(data.summary.warnings[0],
              AllOf(HasSubstr("data.train: 2 files are not UTF-8 text and left out, the first: "),
                    HasSubstr("logo.png (at byte 0)")));
}

TEST(OpenText, RefusesABinaryFileThatTheListNames) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("a.md", "one\xFF");

  EXPECT_THAT(error_of(ExitCode::damaged_input, [&] { open_data({path}, {}); }),
              HasSubstr("a.md: not UTF-8 text: the byte at offset 3"));
}

TEST(OpenText, RefusesTextBesideATokenizerThatCannotReadIt) {
  const test::TemporaryDirectory folder;
  const std::string text = folder.write("a.md", "one");
  const std::string tokens = folder.write("b.bin", llmc_shard<std::uint16_t>({1, 2}));

  for (const char* tokenizer : {"none", "gpt2_tokenizer.bin"}) {
    EXPECT_THAT(error_of(ExitCode::bad_input, [&] { open_data({text}, {.tokenizer = tokenizer}); }),
                AllOf(HasSubstr("a.md is text"), HasSubstr(tokenizer), HasSubstr("data.tokenizer: bytes")));
    EXPECT_EQ(open_data({tokens}, {.tokenizer = tokenizer}).tokens->size(), 2);
  }
}

TEST(OpenText, NotesEmptyFiles) {
  const test::TemporaryDirectory folder;
  folder.write("a.md", "");
  folder.write("b.md", "two");

  const auto data = open_data({folder / "a.md", folder / "b.md"}, {});

  EXPECT_THAT(ids_of(*data.tokens), ElementsAre('t', 'w', 'o'));
  ASSERT_EQ(data.summary.notes.size(), 1U);
  EXPECT_THAT(data.summary.notes[0], HasSubstr("1 file is empty, the first: "));
}

TEST(OpenText, RefusesDataWithoutAToken) {
  const test::TemporaryDirectory folder;
  const std::string empty = folder.write("a/a.md", "");
  folder.write("b/x.bin", llmc_shard<std::uint16_t>({1, 2}));
  const std::string no_tokens = folder.write("c.bin", llmc_shard<std::uint16_t>({}));

  EXPECT_THAT(error_of(ExitCode::bad_input, [&] { open_data({empty}, {}); }), HasSubstr("no token in 1 file"));
  EXPECT_THAT(error_of(ExitCode::bad_input, [&] { open_data({folder / "b"}, {}); }),
              HasSubstr("name token files as folder/*.bin"));
  EXPECT_THAT(error_of(ExitCode::bad_input, [&] { open_data({no_tokens}, {}); }), HasSubstr("no token in 1 file"));
}

TEST(OpenText, RefusesTextOverTheLimitBeforeReadingIt) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("huge.txt", "x");
  fs::resize_file(path, std::uintmax_t{9} << 30U);  // a hole: nothing is stored

  EXPECT_THAT(error_of(ExitCode::bad_input, [&] { open_data({path}, {}); }),
              AllOf(HasSubstr("9.00 GiB of text in 1 file"), HasSubstr("huge.txt"), HasSubstr("at most 8.00 GiB")));
}

TEST(OpenText, TakesTextUpToTheLimitExactly) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("a.txt", "12345678");

  EXPECT_EQ(open_data({path}, {.text_limit = Bytes{8}}).tokens->size(), 8);
  EXPECT_THROW(open_data({path}, {.text_limit = Bytes{7}}), Error);
}

/// Files that claim to be empty and are not (as those of /proc) count by what they hold.
TEST(OpenText, RefusesToReadPastTheLimit) {
  EXPECT_THAT(error_of(ExitCode::damaged_input, [&] { open_data({"/proc/self/status"}, {.text_limit = Bytes{16}}); }),
              HasSubstr("longer than 16 B"));
}

/// A file that opens, but whose first page cannot be read by anyone.
TEST(OpenText, GivesTheReasonOfTheSystem) {
  EXPECT_THAT(error_of(ExitCode::damaged_input, [] { open_data({"/proc/self/mem"}, {}); }),
              HasSubstr("reading /proc/self/mem: Input/output error"));
}

TEST(OpenLlmc, JoinsShardsByPattern) {
  const test::TemporaryDirectory folder;
  folder.write("train_2.bin", llmc_shard<std::uint16_t>({3, 4}));
  folder.write("train_1.bin", llmc_shard<std::uint16_t>({1, 2}));
  folder.write("val_1.bin", llmc_shard<std::uint16_t>({9}));

  const auto data = open_data({folder / "train_*.bin"}, {});

  EXPECT_THAT(ids_of(*data.tokens), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(data.tokens->id_bound(), 65536);
  EXPECT_THAT(description_of(data.summary), HasSubstr("llm.c tokens, 2 files, "));
}

TEST(OpenData, OutlivesTheFilesThatItMaps) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("a.bin", llmc_shard<std::uint16_t>({1, 2}));
  const auto data = open_data({path}, {});
  fs::remove(path);

  EXPECT_THAT(ids_of(*data.tokens), ElementsAre(1, 2));
}

std::uint64_t fingerprint_of(const std::vector<std::string>& paths) {
  return open_data(paths, {}).summary.fingerprint;
}

TEST(Fingerprint, IsThatOfTheContentAndTheNames) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("one/a.md", "text");
  const std::uint64_t before = fingerprint_of({path});

  EXPECT_EQ(fingerprint_of({folder.write("two/a.md", "text")}), before);  // moved
  EXPECT_NE(fingerprint_of({folder.write("two/b.md", "text")}), before);
  EXPECT_NE(fingerprint_of({folder.write("one/a.md", "tex.")}), before);
  EXPECT_NE(fingerprint_of({folder.write("one/a.md", "text ")}), before);
}

TEST(Fingerprint, SeesTheOrderAndTheEndsOfShards) {
  const test::TemporaryDirectory folder;
  std::vector<std::uint16_t> ids(200'000, 7);
  const std::string a = folder.write("a.bin", llmc_shard(ids));
  const std::string b = folder.write("b.bin", llmc_shard<std::uint16_t>({1}));
  const std::uint64_t before = fingerprint_of({a, b});

  EXPECT_NE(fingerprint_of({b, a}), before);
  ids.back() = 8;
  folder.write("a.bin", llmc_shard(ids));
  EXPECT_NE(fingerprint_of({a, b}), before);
}

TEST(SharedFiles, FindsWhatIsInBothWhateverThePath) {
  const test::TemporaryDirectory folder;
  folder.write("a.md", "one");
  folder.write("b.md", "two");
  fs::create_symlink("b.md", folder / "link");
  const auto all = open_data({folder.path().string()}, {});
  const auto link = open_data({folder / "link"}, {});
  const auto a = open_data({folder / "a.md"}, {});

  EXPECT_THAT(shared_files(all.summary, link.summary), ElementsAre(folder / "link"));
  EXPECT_THAT(shared_files(a.summary, link.summary), IsEmpty());
}

}  // namespace
}  // namespace penstock
