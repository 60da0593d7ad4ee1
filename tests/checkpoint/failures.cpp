// SPDX-License-Identifier: Apache-2.0
//
// A write that fails leaves the checkpoints before as they were, and tells all ranks.
#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.hpp"
#include "checkpoint/example.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"
#include "comm/communicator.hpp"

namespace penstock {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::Not;

/// Lets this process write no file beyond `bytes`, as a quota would: writing fails with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

class Failures : public ::testing::Test {
 protected:
  Failures() { write(example_contents(1)); }

  void write(const CheckpointContents& contents) const {
    const auto pieces = deal(contents, Deal::single_chunks, group_.rank(), group_.size());
    write_checkpoint(group_, {folder_.path(), 2}, contents, pieces.pieces);
  }
  /// The Error of a write of step 2, in which this rank's pieces are changed before.
  template <class Change>
  Error error_of_write(Change change, std::int64_t step = 2) const {
    const auto contents = example_contents(step);
    auto pieces = deal(contents, Deal::single_chunks, group_.rank(), group_.size());
    change(pieces);
    try {
      write_checkpoint(group_, {folder_.path(), 2}, contents, pieces.pieces);
    } catch (const Error& error) {
      return error;
    }
    return {ExitCode::finished, "no error"};
  }
  void expect_step_1_alone() const {
    group_.barrier();
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator{folder_.path()})
      names.push_back(entry.path().filename());
    EXPECT_THAT(names, ::testing::ElementsAre(checkpoint_name(1)));
    EXPECT_EQ(find_latest(group_, folder_.path()), folder_ / checkpoint_name(1));
  }
  const Communicator group_ = Communicator::world().duplicate();
  const SharedFolder folder_{group_};
};

constexpr auto nothing = [](auto&) {};

TEST_F(Failures, FullDiskNamesTheFileAndTheBytesNeeded) {
  Error error{ExitCode::finished, ""};
  {
    const FileSizeLimit limit{1 << 20};
    error = error_of_write(nothing);
  }

  EXPECT_EQ(error.code(), ExitCode::cannot_write);
  EXPECT_THAT(error.what(), HasSubstr(folder_ / checkpoint_name(2)));
  EXPECT_THAT(error.what(), HasSubstr("bytes"));
  expect_step_1_alone();
}

TEST_F(Failures, FullDiskTellsWhichCheckpointMayBeDeletedIfANewerOneIsThere) {
  Error with_one{ExitCode::finished, ""};
  Error with_two{ExitCode::finished, ""};
  {
    const FileSizeLimit limit{1 << 20};
    with_one = error_of_write(nothing);
  }
  write(example_contents(2));
  {
    const FileSizeLimit limit{1 << 20};
    with_two = error_of_write(nothing, 3);
  }

  EXPECT_THAT(with_one.what(), Not(HasSubstr("may be deleted")));
  EXPECT_THAT(with_two.what(), HasSubstr(fmt::format("{} may be deleted, as {} is newer", folder_ / checkpoint_name(1),
                                                     folder_ / checkpoint_name(2))));
}

TEST_F(Failures, WriteThatFailsOnOneRankFailsOnAll) {
  Error error{ExitCode::finished, ""};
  {
    // Rank 0 reserves the room; the last rank (rank 0 too where it is alone) may not write where its data belongs.
    const FileSizeLimit limit{group_.rank() == group_.size() - 1 ? rlim_t{1} << 20U : RLIM_INFINITY};
    error = error_of_write(nothing);
  }

  EXPECT_EQ(error.code(), ExitCode::cannot_write);
  EXPECT_THAT(error.what(), HasSubstr(checkpoint_name(2)));
  EXPECT_THAT(error.what(), HasSubstr(group_.size() > 1 ? fmt::format("rank {}: ", group_.size() - 1) : ""));
  expect_step_1_alone();
}

TEST_F(Failures, ValueThatIsNotFiniteIsNamed) {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    const auto error = error_of_write([&](auto& pieces) {
      for (std::size_t i = 0; i < pieces.pieces.size(); ++i) {
        if (pieces.pieces[i].dataset == 2 && pieces.pieces[i].first > 0) pieces.memory[i][11] = value;
      }
    });

    EXPECT_EQ(error.code(), ExitCode::not_finite);
    EXPECT_THAT(error.what(), HasSubstr("optimizer/first_moment/table"));
    EXPECT_THAT(error.what(), HasSubstr("element " + std::to_string(chunk_elements + 11)));
    expect_step_1_alone();
  }
}

TEST_F(Failures, DenormalsAndLargestValuesAreSavedAsTheyAre) {
  const auto contents = small_contents(2);
  auto pieces = deal(contents, Deal::all_to_the_last, group_.rank(), group_.size());
  const std::vector<float> unusual{std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::max(), -0.0F};
  if (!pieces.memory.empty()) std::copy(unusual.begin(), unusual.end(), pieces.memory[0].get());
  write_checkpoint(group_, {folder_.path(), 2}, contents, pieces.pieces);
  Pieces<float> loaded;
  const float* values = loaded.add(0, 0, 3);

  load_checkpoint(group_, folder_ / checkpoint_name(2), contents.datasets, loaded.pieces);

  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(unusual[i]));
}

TEST_F(Failures, FolderThatCannotBeMadeIsNamed) {
  const std::string inside_a_file = folder_ / checkpoint_name(1) + "/checkpoints";
  const auto contents = small_contents(2);
  const auto pieces = deal(contents, Deal::single_chunks, group_.rank(), group_.size());

  try {
    write_checkpoint(group_, {inside_a_file, 2}, contents, pieces.pieces);
    FAIL() << "written inside a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::cannot_write);
    EXPECT_THAT(error.what(), HasSubstr(inside_a_file));
  }
}

TEST_F(Failures, NextWriteSucceedsAndRemovesWhatAKilledOneLeft) {
  if (group_.rank() == 0) std::ofstream{folder_ / "step_00000002.h5.partial"} << "half";
  group_.barrier();

  write(example_contents(3));

  group_.barrier();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "step_00000002.h5.partial"));
  EXPECT_EQ(find_latest(group_, folder_.path()), folder_ / checkpoint_name(3));
}

TEST_F(Failures, LoadThatFailsOnOneRankFailsOnAll) {
  const auto contents = example_contents(1);
  auto datasets = contents.datasets;
  if (group_.rank() == group_.size() - 1) datasets[1].columns = 6;
  auto loaded = room_for_everything(datasets);

  try {
    load_checkpoint(group_, folder_ / checkpoint_name(1), datasets, loaded.pieces);
    FAIL() << "loaded another shape";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    EXPECT_THAT(error.what(), HasSubstr("has the shape [3, 5] where [3, 6] is expected"));
  }
}

}  // namespace
}  // namespace penstock
