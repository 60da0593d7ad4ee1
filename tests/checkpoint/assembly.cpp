// SPDX-License-Identifier: Apache-2.0
//
// Ranks that hold parts of chunks save whole ones.
#include "checkpoint/assembly.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "checkpoint/example.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"

namespace penstock {
namespace {

using namespace test;
using ::testing::HasSubstr;

class Assembly : public ::testing::Test {
 protected:
  /// Each rank's part of every data set, cut anywhere.
  Pieces<const float> parts(const CheckpointContents& contents) const {
    Pieces<const float> pieces;
    for (std::int32_t set = 0; set < static_cast<std::int32_t>(contents.datasets.size()); ++set) {
      const std::int64_t size = contents.datasets[static_cast<std::size_t>(set)].size();
      const std::int64_t first = size * group_.rank() / group_.size();
      const std::int64_t count = size * (group_.rank() + 1) / group_.size() - first;
      if (count > 0) add_example(pieces, contents.header.step, set, first, count);
    }
    return pieces;
  }

  const Communicator group_ = Communicator::world().duplicate();
  ChunkAssembly assembly_;
};

TEST_F(Assembly, GivesWhatTheFileTakesAndAnyRankLoads) {
  const SharedFolder folder{group_};
  const auto contents = example_contents(50);
  const auto own = parts(contents);

  const auto whole = assembly_.whole_chunks(group_, contents.datasets, own.pieces);

  const auto report = write_checkpoint(group_, {folder.path(), 2}, contents, whole);
  auto loaded = room_for_everything(contents.datasets);
  load_checkpoint(group_, report.path, contents.datasets, loaded.pieces);
  EXPECT_EQ(wrong_elements(loaded, 50), 0);
}

TEST_F(Assembly, LeavesWholeChunksWhereTheyAre) {
  const auto contents = example_contents(1);
  const auto own = deal(contents, Deal::single_chunks, group_.rank(), group_.size());

  const auto whole = assembly_.whole_chunks(group_, contents.datasets, own.pieces);

  ASSERT_EQ(whole.size(), own.pieces.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].first, own.pieces[i].first);
    EXPECT_EQ(whole[i].data, own.pieces[i].data);
  }
}

TEST_F(Assembly, FindsPartsThatNoRankHasAndThatTwoHave) {
  const auto contents = small_contents(1);
  Pieces<const float> lacking;
  Pieces<const float> doubled;
  if (group_.rank() == 0) {
    add_example(lacking, 1, 0, 0, 20);
    add_example(lacking, 1, 0, 30, 40);
    add_example(doubled, 1, 0, 0, 20);
    add_example(doubled, 1, 0, 10, 60);
  }
  const auto message_of = [&](const Pieces<const float>& pieces) -> std::string {
    try {
      assembly_.whole_chunks(group_, contents.datasets, pieces.pieces);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };

  EXPECT_THAT(message_of(lacking), HasSubstr("by no rank"));
  EXPECT_THAT(message_of(doubled), HasSubstr("twice"));
}

}  // namespace
}  // namespace penstock
