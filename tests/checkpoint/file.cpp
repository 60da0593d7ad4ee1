// SPDX-License-Identifier: Apache-2.0
//
// What a finished file is: readable by h5py, small in its metadata, refused with a reason where it does not fit.
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/units.hpp"
#include "checkpoint/example.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"
#include "comm/communicator.hpp"
#include "model/spec.hpp"

namespace penstock {
namespace {

using namespace test;
using ::testing::HasSubstr;

std::string write_example(const TemporaryDirectory& folder, const CheckpointContents& contents) {
  return write_checkpoint(Communicator::self(), {folder.path().string(), 9}, contents, everything(contents).pieces)
      .path;
}

std::string loading_fault(const std::string& path, const std::vector<CheckpointDataset>& datasets) {
  auto loaded = room_for_everything(datasets);
  try {
    load_checkpoint(path, datasets, loaded.pieces);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    return error.what();
  }
  return "no error";
}

TEST(CheckpointFile, TellsItsContentsWithoutMpi) {
  const TemporaryDirectory folder;
  const auto contents = small_contents(3);
  const auto path = write_example(folder, contents);

  const auto found = read_checkpoint_contents(path);

  EXPECT_EQ(found.header, contents.header);
  EXPECT_EQ(read_checkpoint_header(path), contents.header);
  EXPECT_THAT(found.datasets, ::testing::UnorderedElementsAreArray(contents.datasets));
}

TEST(CheckpointFile, KeepsALongDeckAndAnEmptyOne) {
  const TemporaryDirectory folder;
  auto contents = small_contents(1);
  contents.header.deck = std::string(300000, 'x') + "\n";
  const auto path = write_example(folder, contents);
  contents.header.deck.clear();
  contents.header.step = 2;
  const auto path_of_empty = write_example(folder, contents);

  EXPECT_EQ(read_checkpoint_header(path).deck.size(), 300001U);
  EXPECT_EQ(read_checkpoint_header(path_of_empty).deck, "");
}

TEST(CheckpointFile, NamesADataSetThatIsMissing) {
  const TemporaryDirectory folder;
  const auto path = write_example(folder, small_contents(1));
  auto datasets = small_contents(1).datasets;
  datasets[1].name = "parameters/layers/1/query/weight";

  const auto fault = loading_fault(path, datasets);

  EXPECT_THAT(fault, HasSubstr("/parameters/layers/1/query/weight is missing"));
  EXPECT_THAT(fault, HasSubstr(path));
}

TEST(CheckpointFile, NamesADataSetOfAnotherShape) {
  const TemporaryDirectory folder;
  const auto path = write_example(folder, small_contents(1));
  auto datasets = small_contents(1).datasets;
  datasets[1] = {datasets[1].name, 50, 30, false};
  auto flat = small_contents(1).datasets;
  flat[1] = {flat[1].name, 1, 1500, true};

  EXPECT_THAT(loading_fault(path, datasets), HasSubstr("has the shape [30, 50] where [50, 30] is expected"));
  EXPECT_THAT(loading_fault(path, flat), HasSubstr("has the shape [30, 50] where [1500] is expected"));
}

TEST(CheckpointFile, OfAModelHoldsItsParametersAndBothMoments) {
  ModelSpec model;
  model.layers = 2;
  const auto datasets = datasets_of(model);
  const auto parameters = static_cast<std::int32_t>(datasets.size()) / state_kind_count;

  const auto& second = datasets[static_cast<std::size_t>(dataset_index(StateKind::second_moment, 0, parameters))];

  EXPECT_EQ(datasets[0].name, "parameters/embedding/token/weight");
  EXPECT_EQ(second.name, "optimizer/second_moment/embedding/token/weight");
  EXPECT_EQ(second.rows, model.vocabulary);
}

TEST(CheckpointFile, OfGpt2HasLittleMetadata) {
  const TemporaryDirectory folder;
  ModelSpec model;
  model.family = Family::gpt2;
  model.layers = 12;
  model.hidden = 16;
  model.heads = model.kv_heads = 2;
  model.head_size = 8;
  model.ffn = 64;
  const CheckpointContents contents{example_header(1), datasets_of(model)};
  std::int64_t data = 0;
  for (const auto& set : contents.datasets) data += set.size() * 4;

  const Seconds begin = now();
  const auto path = write_example(folder, contents);
  const Seconds seconds = now() - begin;

  EXPECT_GE(contents.datasets.size(), 444U);
  const auto metadata = static_cast<std::int64_t>(std::filesystem::file_size(path)) - data;
  EXPECT_LT(metadata, 4096 * static_cast<std::int64_t>(contents.datasets.size()))
      << "the room reserved beside the data";
  EXPECT_LT(seconds.value, 5.0);  // about 0.05 s on an idle machine
  RecordProperty("metadata_bytes", static_cast<int>(metadata));
  RecordProperty("microseconds", static_cast<int>(seconds.value * 1e6));
}

TEST(CheckpointFile, IsReadByH5py) {
  if (std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0) GTEST_SKIP() << "no h5py";
  const TemporaryDirectory folder;
  const auto path = write_example(folder, small_contents(3));

  const int status = std::system(("/usr/bin/python3 tests/checkpoint/read_with_h5py.py " + path).c_str());

  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace penstock
