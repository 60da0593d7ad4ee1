// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.hpp"
#include "checkpoint/example.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"
#include "support/temporary_directory.hpp"

namespace penstock {
namespace {

using test::TemporaryDirectory;
using ::testing::HasSubstr;

TEST(CheckpointName, SortsByStepAndGrows) {
  EXPECT_EQ(checkpoint_name(50), "step_00000050.h5");
  EXPECT_EQ(checkpoint_name(123456789), "step_123456789.h5");
}

TEST(ListCheckpoints, TakesFinishedFilesNewestFirst) {
  const TemporaryDirectory folder;
  for (const char* name : {"step_00000050.h5", "step_123456789.h5", "step_00000051.h5", "step_00000060.h5.partial",
                           "step_.h5", "step_1x.h5", "step_-1.h5", "model.h5", "step_99999999999999999999.h5"})
    folder.write(name, "");

  const auto files = list_checkpoints(folder.path().string());

  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].step, 123456789);
  EXPECT_EQ(files[1].path, folder / "step_00000051.h5");
  EXPECT_EQ(files[2].step, 50);
}

TEST(Prune, KeepsTheNewestAndEveryOtherFile) {
  const TemporaryDirectory folder;
  for (const char* name :
       {"step_00000001.h5", "step_00000002.h5", "step_00000003.h5", "step_00000004.h5.partial", "notes.txt"})
    folder.write(name, "");

  prune(folder.path().string(), 3, 2);

  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{folder.path()}) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step_00000002.h5", "step_00000003.h5", "notes.txt"));
}

TEST(Prune, CountsFromTheFileJustWrittenAndLeavesThoseOfLaterSteps) {
  const TemporaryDirectory folder;
  for (const char* name : {"step_00000040.h5", "step_00000044.h5", "step_00000050.h5", "step_00000060.h5"})
    folder.write(name, "");

  prune(folder.path().string(), 44, 1);

  std::vector<std::int64_t> steps;
  for (const auto& file : list_checkpoints(folder.path().string())) steps.push_back(file.step);
  EXPECT_THAT(steps, ::testing::ElementsAre(60, 50, 44));
}

TEST(WriteCheckpoint, DoesNotMakeTheRunsFolderAnewWhenItIsGone) {
  const TemporaryDirectory folder;
  const auto contents = test::small_contents(1);

  try {
    write_checkpoint(Communicator::self(), {folder / "gone/checkpoints", 2}, contents,
                     test::everything(contents).pieces);
    FAIL() << "written into a folder that is gone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::cannot_write);
    EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "gone"));
}

/// How many pages of a file the system has in memory; none where its file system has no other place for them.
std::optional<std::size_t> pages_in_memory(const std::string& path, std::size_t bytes) {
  const int file = open(path.c_str(), O_RDONLY);
  struct statfs system {};
  fstatfs(file, &system);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> is_in_memory((bytes + page - 1) / page);
  mincore(data, bytes, is_in_memory.data());
  munmap(data, bytes);
  close(file);
  if (system.f_type == TMPFS_MAGIC || system.f_type == OVERLAYFS_SUPER_MAGIC) return std::nullopt;
  return std::count_if(is_in_memory.begin(), is_in_memory.end(), [](unsigned char flags) { return (flags & 1) != 0; });
}

TEST(Synchronize, LeavesNothingInTheFileCache) {
  constexpr std::size_t bytes = 1 << 20;
  const TemporaryDirectory folder;
  folder.write("data", std::string(bytes, 'x'));
  const std::string path = folder / "data";
  if (!pages_in_memory(path, bytes)) GTEST_SKIP() << "a file system that keeps files in memory";
  ASSERT_GT(pages_in_memory(path, bytes), 0U);

  synchronize(path);
  const auto after_the_end = pages_in_memory(path, bytes);
  std::ifstream{path}.ignore(bytes);
  const auto when_read = pages_in_memory(path, bytes);
  begin_to_synchronize(path);

  EXPECT_EQ(after_the_end, 0U);
  EXPECT_GT(when_read, 0U);
  EXPECT_EQ(pages_in_memory(path, bytes), 0U);
}

/// A small disk, where this process may mount one.
class SmallDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "no right to mount a tmpfs";
    is_mounted_ = true;
  }
  void TearDown() override {
    if (is_mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  const TemporaryDirectory folder_;

 private:
  bool is_mounted_ = false;
};

TEST_F(SmallDisk, ThatIsFullFailsTheWriteAndKeepsTheCheckpointBefore) {
  const auto group = Communicator::self();
  const auto small = test::small_contents(1);
  write_checkpoint(group, {folder_.path().string(), 2}, small, test::everything(small).pieces);
  const auto large = test::example_contents(2);

  try {
    write_checkpoint(group, {folder_.path().string(), 2}, large, test::everything(large).pieces);
    FAIL() << "written 23 MiB into 1 MiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::cannot_write);
    EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
    EXPECT_THAT(error.what(), HasSubstr(folder_ / checkpoint_name(2)));
  }
  EXPECT_EQ(find_latest(group, folder_.path().string()), folder_ / checkpoint_name(1));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder_.path()}, {}), 1);
}

}  // namespace
}  // namespace penstock
