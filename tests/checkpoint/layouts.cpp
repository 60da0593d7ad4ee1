// SPDX-License-Identifier: Apache-2.0
//
// What one layout of ranks saves, any other loads.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

class Layouts : public ::testing::TestWithParam<Deal> {
 protected:
  const Communicator group_ = Communicator::world().duplicate();
  const SharedFolder folder_{group_};
  Pieces<const float> dealt(const CheckpointContents& contents) const {
    return deal(contents, GetParam(), group_.rank(), group_.size());
  }
};

TEST_P(Layouts, SaveWhatEveryRankLoadsWhole) {
  const auto contents = example_contents(50);
  const auto report = write_checkpoint(group_, {folder_.path(), 2}, contents, dealt(contents).pieces);
  auto loaded = room_for_everything(contents.datasets);

  const auto header = load_checkpoint(group_, report.path, contents.datasets, loaded.pieces);

  EXPECT_EQ(report.path, folder_ / "step_00000050.h5");
  EXPECT_EQ(header, contents.header);
  EXPECT_EQ(wrong_elements(loaded, 50), 0);
}

TEST_P(Layouts, SaveWhatRanksLoadInRangesThatAreNoChunks) {
  const auto contents = example_contents(3);
  const auto report = write_checkpoint(group_, {folder_.path(), 2}, contents, dealt(contents).pieces);
  Pieces<float> loaded;
  for (std::int32_t set = 0; set < 5; ++set) {
    const std::int64_t size = contents.datasets[static_cast<std::size_t>(set)].size();
    const std::int64_t first = size * group_.rank() / group_.size();
    loaded.add(set, first, size * (group_.rank() + 1) / group_.size() - first);
  }
  loaded.add(3, 999999, 3);
  loaded.add(4, 2 * chunk_elements, 1);
  loaded.add(4, chunk_elements - 1, chunk_elements + 2);

  load_checkpoint(group_, report.path, contents.datasets, loaded.pieces);

  EXPECT_EQ(wrong_elements(loaded, 3), 0);
}

std::string name_of_deal(const ::testing::TestParamInfo<Deal>& deal_info) {
  constexpr const char* names[] = {"WholeDataSets", "SingleChunks", "AllToTheLast", "Halves"};
  return names[static_cast<std::size_t>(deal_info.param)];
}

INSTANTIATE_TEST_SUITE_P(OfRanks, Layouts,
                         ::testing::Values(Deal::whole_data_sets, Deal::single_chunks, Deal::all_to_the_last,
                                           Deal::halves),
                         name_of_deal);

/// The message of the internal Error of a write with these pieces.
std::string fault_of(const Communicator& group, const std::string& folder, const CheckpointContents& contents,
                     const std::vector<SavedPiece>& pieces) {
  try {
    write_checkpoint(group, {folder, 2}, contents, pieces);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    return error.what();
  }
  return "no error";
}

class Coverage : public ::testing::Test {
 protected:
  std::string fault(const std::vector<SavedPiece>& pieces) const {
    return fault_of(group_, folder_.path(), contents_, pieces);
  }
  bool is_first() const { return group_.rank() == 0; }
  const Communicator group_ = Communicator::world().duplicate();
  const SharedFolder folder_{group_};
  const CheckpointContents contents_ = small_contents(1);
  const Pieces<const float> whole_ = everything(contents_);
};

TEST_F(Coverage, NamesElementsThatNoRankGives) {
  const std::vector<SavedPiece> two{whole_.pieces[0], whole_.pieces[2]};

  EXPECT_THAT(fault(is_first() ? two : std::vector<SavedPiece>{}),
              HasSubstr("no rank gives the elements [0, 1500) of parameters/layers/0/query/weight"));
}

TEST_F(Coverage, NamesElementsThatAreGivenTwice) {
  auto pieces = is_first() ? whole_.pieces : std::vector<SavedPiece>{};
  if (group_.rank() == group_.size() - 1) pieces.push_back(whole_.pieces[0]);

  EXPECT_THAT(fault(pieces), HasSubstr("more than one rank gives element 0 of parameters/norm/weight"));
}

TEST_F(Coverage, RefusesPiecesThatAreNoWholeChunks) {
  auto pieces = is_first() ? whole_.pieces : std::vector<SavedPiece>{};
  if (is_first()) pieces[1].count = 1000;

  EXPECT_THAT(fault(pieces), HasSubstr("no whole chunks"));
}

TEST_F(Coverage, RefusesPiecesOutsideTheirDataSet) {
  auto pieces = is_first() ? whole_.pieces : std::vector<SavedPiece>{};
  if (is_first()) pieces[0].count = 71;

  EXPECT_THAT(fault(pieces), HasSubstr("gives the elements [0, 71) of parameters/norm/weight, which has 70"));
}

TEST_F(Coverage, RefusesRanksThatMeanDifferentDataSets) {
  auto contents = contents_;
  if (!is_first()) contents.datasets[1].rows = 31;

  const auto fault = fault_of(group_, folder_.path(), contents, is_first() ? whole_.pieces : std::vector<SavedPiece>{});

  EXPECT_THAT(fault, group_.size() > 1 ? HasSubstr("different lists") : HasSubstr("no error"));
}

TEST(FindLatest, TakesTheNewestThatIsWholeTheSameOnAllRanks) {
  const auto group = Communicator::world().duplicate();
  const SharedFolder folder{group};
  for (const std::int64_t step : {1, 2, 10}) {
    const auto contents = small_contents(step);
    const auto pieces = deal(contents, Deal::whole_data_sets, group.rank(), group.size());
    write_checkpoint(group, {folder.path(), 3}, contents, pieces.pieces);
  }

  if (group.rank() == 0) std::filesystem::resize_file(folder / checkpoint_name(10), 3000);
  const auto found = find_latest(group, folder.path());

  EXPECT_EQ(found, folder / checkpoint_name(2));
}

TEST(FindLatest, FindsNothingInAnEmptyOrMissingFolder) {
  const auto group = Communicator::world().duplicate();
  const SharedFolder folder{group};

  EXPECT_EQ(find_latest(group, folder.path()), std::nullopt);
  EXPECT_EQ(find_latest(group, folder / "missing"), std::nullopt);
}

TEST(FindLatest, FailsOnAllRanksIfEveryCheckpointIsBroken) {
  const auto group = Communicator::world().duplicate();
  const SharedFolder folder{group};
  if (group.rank() == 0) std::ofstream{folder / checkpoint_name(4)} << "no HDF5";

  try {
    find_latest(group, folder.path());
    FAIL() << "found one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    EXPECT_THAT(error.what(), HasSubstr(checkpoint_name(4)));
  }
}

}  // namespace
}  // namespace penstock
