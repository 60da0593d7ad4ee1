// SPDX-License-Identifier: Apache-2.0
#include "data/locate.hpp"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/data_files.hpp"
#include "support/temporary_directory.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> names_of(const Located& located) {
  std::vector<std::string> names;
  for (const LocatedFile& file : located.files) names.push_back(fs::path{file.record.path}.filename().string());
  return names;
}

std::string locate_error(const std::vector<std::string>& paths) {
  return error_of(ExitCode::bad_input, [&] { locate(paths, "data.train"); });
}

TEST(Locate, WalksFoldersToTheBottomByTheBytesOfThePaths) {
  const test::TemporaryDirectory folder;
  for (const char* name : {"b", "a/z", "a/B", "a.x", "\xC3\xA9", "Z"}) folder.write(name, "x");

  const auto located = locate({folder.path().string()}, "data.train");

  EXPECT_EQ(located.kind, DataKind::text);
  // '.' comes before '/', and capitals before the rest.
  EXPECT_THAT(names_of(located), ElementsAre("Z", "a.x", "B", "z", "b", "\xC3\xA9"));
  EXPECT_FALSE(located.files.front().named);
}

TEST(Locate, PassesOverHiddenAndSpecialFiles) {
  const test::TemporaryDirectory folder;
  folder.write(".git/config", "x");
  folder.write(".hidden", "x");
  folder.write("a", "x");
  folder.write("elsewhere/b", "x");
  fs::create_symlink("elsewhere", folder / "c");  // would be walked twice
  fs::create_symlink("nothing", folder / "d");
  ASSERT_EQ(::mkfifo((folder / "e").c_str(), 0600), 0);

  EXPECT_THAT(names_of(locate({folder.path().string()}, "data.train")), ElementsAre("a", "b"));
}

TEST(Locate, TakesWhatTheListNamesEvenIfHidden) {
  const test::TemporaryDirectory folder;
  const std::string hidden = folder.write(".notes/a", "x");

  EXPECT_THAT(names_of(locate({folder / ".notes"}, "data.train")), ElementsAre("a"));
  EXPECT_TRUE(locate({hidden}, "data.train").files.front().named);
}

TEST(Locate, ReadsAFileOnceWhateverLeadsToIt) {
  const test::TemporaryDirectory folder;
  folder.write("GPL-3", "x");
  folder.write("other", "x");
  fs::create_symlink("GPL-3", folder / "GPL");
  fs::create_hard_link(folder / "other", folder / "same");

  const auto located = locate({folder.path().string(), folder / "GPL-3"}, "data.train");

  EXPECT_THAT(names_of(located), ElementsAre("GPL", "other"));
  ASSERT_EQ(located.notes.size(), 1U);
  EXPECT_THAT(located.notes[0], AllOf(HasSubstr("3 paths lead"), HasSubstr("GPL-3")));
}

TEST(Locate, KeepsTheOrderOfTheList) {
  const test::TemporaryDirectory folder;
  const std::string b = folder.write("b", "x");
  const std::string a = folder.write("a", "x");

  EXPECT_THAT(names_of(locate({b, a}, "data.train")), ElementsAre("b", "a"));
}

TEST(Locate, ExpandsPatternsByTheBytesOfThePaths) {
  const test::TemporaryDirectory folder;
  for (const char* name : {"s_10.bin", "s_02.bin", "S_01.bin", "t.bin", "s.txt"}) folder.write(name, "x");

  EXPECT_THAT(names_of(locate({folder / "*.bin"}, "k")), ElementsAre("S_01.bin", "s_02.bin", "s_10.bin", "t.bin"));
  EXPECT_THAT(names_of(locate({folder / "s_[0-9]?.bin"}, "k")), ElementsAre("s_02.bin", "s_10.bin"));
  EXPECT_THAT(names_of(locate({folder / "*.txt"}, "k")), ElementsAre("s.txt"));
}

TEST(Locate, OrdersManyMatchesWhateverTheFolderSays) {
  const test::TemporaryDirectory folder;
  std::vector<std::string> names;
  names.reserve(64);
  for (int i = 0; i < 64; ++i) names.push_back(std::to_string(100 + 37 * i % 64) + ".bin");
  for (const std::string& name : names) folder.write(name, "x");
  std::sort(names.begin(), names.end());

  EXPECT_EQ(names_of(locate({folder / "*.bin"}, "k")), names);
}

TEST(Locate, TakesAPathWithPatternLettersAsItIsIfItExists) {
  const test::TemporaryDirectory folder;
  const std::string odd = folder.write("a[1].txt", "x");
  folder.write("a1.txt", "x");

  EXPECT_THAT(names_of(locate({odd}, "k")), ElementsAre("a[1].txt"));
}

TEST(Locate, TellsTheKindsByThePaths) {
  const test::TemporaryDirectory folder;
  folder.write("a.bin", "x");
  folder.write("p.idx", "x");
  folder.write("p.bin", "x");
  folder.write("t.md", "x");
  fs::create_directory(folder / "p");

  EXPECT_EQ(locate({folder / "a.bin"}, "k").kind, DataKind::llmc);
  EXPECT_EQ(locate({folder / "p"}, "k").kind, DataKind::megatron);
  EXPECT_EQ(locate({folder / "t.md"}, "k").kind, DataKind::text);
  EXPECT_EQ(locate({folder.path().string()}, "k").kind, DataKind::text);
}

TEST(Locate, RefusesMixedKindsWithTheList) {
  const test::TemporaryDirectory folder;
  folder.write("a.bin", "x");
  folder.write("t.md", "x");

  EXPECT_THAT(locate_error({folder / "a.bin", folder / "t.md"}),
              AllOf(HasSubstr("several kinds"), HasSubstr("a.bin: llm.c tokens"), HasSubstr("t.md: text")));
}

TEST(Locate, SaysWhatLiesNearAMissingPath) {
  const test::TemporaryDirectory folder;
  folder.write("doc/data.md", "x");
  folder.write("doc/decks.md", "x");

  EXPECT_THAT(
      locate_error({folder / "doc/dta.md"}),
      AllOf(HasSubstr("data.train: "), HasSubstr("no such file or folder"), HasSubstr("doc: data.md, decks.md")));
  EXPECT_THAT(locate_error({folder / "docs/deep/dta.md"}), HasSubstr(": doc"));
  EXPECT_THAT(locate_error({folder / "docs/"}), HasSubstr(": doc"));
  EXPECT_THAT(locate_error({folder / "doc/*.bin"}), HasSubstr("no file matches"));
  EXPECT_THAT(locate_error({folder / "doc/x.bin"}), HasSubstr("no such file"));
  EXPECT_THAT(locate_error({"surely_not_here.txt"}), HasSubstr("the working directory"));
  EXPECT_THAT(locate_error({"/surely/not/here"}), HasSubstr("nearest in /"));
  EXPECT_THAT(locate_error({folder / "doc/data.md/x"}), HasSubstr("no such file or folder"));
}

TEST(Locate, ExplainsHalvesAndNamesOfMegatronFiles) {
  const test::TemporaryDirectory folder;
  folder.write("p.idx", "x");
  EXPECT_THAT(locate_error({folder / "p"}), HasSubstr("p.idx exists alone"));
  folder.write("p.bin", "x");
  EXPECT_THAT(locate_error({folder / "p.idx"}), HasSubstr("write the prefix"));
}

TEST(Locate, RefusesEmptyListsEmptyPathsAndDevices) {
  EXPECT_THAT(locate_error({}), HasSubstr("data.train: the list is empty"));
  EXPECT_THAT(locate_error({""}), HasSubstr("an empty path"));
  EXPECT_THAT(locate_error({"/dev/null"}), HasSubstr("neither a file nor a folder"));
}

TEST(Locate, FindsNothingInAnEmptyFolder) {
  const test::TemporaryDirectory folder;

  EXPECT_THAT(locate({folder.path().string()}, "k").files, IsEmpty());
}

}  // namespace
}  // namespace penstock
