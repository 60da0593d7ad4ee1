// SPDX-License-Identifier: Apache-2.0
//
// Whatever happens to a file, reading it gives what was saved, or an Error that names it.
#include <cstring>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "checkpoint/example.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"
#include "comm/communicator.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Damage : public ::testing::Test {
 protected:
  Damage() {
    const auto path = write_checkpoint(Communicator::self(), {folder_.path(), 1}, contents_, saved_.pieces).path;
    whole_ = folder_.read(std::filesystem::path{path}.filename().string());
  }
  /// Removed before it is written: ext4 waits for the disk when a file that was emptied is closed.
  std::string write(const std::string& bytes) const {
    std::filesystem::remove(folder_ / "damaged.h5");
    return folder_.write("damaged.h5", bytes);
  }

  /// The message of the Error of reading all; nothing if all is as it was saved. Anything else fails the test.
  std::optional<std::string> fault(const std::string& path) const {
    auto loaded = room_for_everything(contents_.datasets);
    try {
      const auto verified = verify_checkpoint(path);
      const auto header = load_checkpoint(path, contents_.datasets, loaded.pieces);
      EXPECT_EQ(header, contents_.header);
      EXPECT_EQ(wrong_elements(loaded, contents_.header.step), 0);
      return std::nullopt;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::damaged_input);
      EXPECT_THAT(error.what(), HasSubstr(path));
      return error.what();
    }
  }
  /// Where the data of a piece begins in the file.
  std::size_t data_offset(std::size_t piece) const {
    const auto& saved = saved_.pieces[piece];
    const auto* begin = reinterpret_cast<const char*>(saved.data);
    return whole_.find(std::string_view{begin, static_cast<std::size_t>(saved.count) * sizeof(float)});
  }

  const TemporaryDirectory folder_;
  const CheckpointContents contents_ = small_contents(5);
  const Pieces<const float> saved_ = everything(contents_);
  std::string whole_;
};

TEST_F(Damage, OfNoneTheFileReadsBack) {
  EXPECT_EQ(fault(write(whole_)), std::nullopt);
}

TEST_F(Damage, OfOneBitOfDataIsFoundAndNamed) {
  const CounterRandom random{1, RandomPurpose::tests, 0};
  for (std::size_t piece = 0; piece < saved_.pieces.size(); ++piece) {
    const std::size_t offset = data_offset(piece);
    ASSERT_NE(offset, std::string::npos);
    const std::size_t bytes = static_cast<std::size_t>(saved_.pieces[piece].count) * sizeof(float);
    for (std::uint64_t trial = 0; trial < 100; ++trial) {
      std::string flipped = whole_;
      const auto at = static_cast<std::size_t>(random.uniform(trial) * static_cast<double>(bytes));
      flipped[offset + at] = static_cast<char>(flipped[offset + at] ^ (1 << trial % 8));

      const auto message = fault(write(flipped));

      ASSERT_TRUE(message.has_value()) << "byte " << at << " of " << contents_.datasets[piece].name;
      EXPECT_THAT(*message, AllOf(HasSubstr("/" + contents_.datasets[piece].name + " "), HasSubstr("chunk 0 of 1")));
    }
  }
}

TEST_F(Damage, OfAnyBitIsFoundOrWithoutEffect) {
  const CounterRandom random{2, RandomPurpose::tests, 0};
  for (std::uint64_t trial = 0; trial < 1500; ++trial) {
    std::string flipped = whole_;
    const auto at = static_cast<std::size_t>(random.uniform(trial) * static_cast<double>(whole_.size()));
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << trial % 8));

    fault(write(flipped));

    if (HasFailure()) FAIL() << "byte " << at;
  }
}

TEST_F(Damage, ByOverwrittenBlocksIsFoundOrWithoutEffect) {
  const CounterRandom random{3, RandomPurpose::tests, 0};
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::string overwritten = whole_;
    const auto at = static_cast<std::size_t>(random.uniform(2 * trial) * static_cast<double>(whole_.size()));
    const auto length = std::min<std::size_t>(whole_.size() - at, random.words(2 * trial + 1)[0] % 512);
    for (std::size_t i = 0; i < length; ++i)
      overwritten[at + i] = static_cast<char>(random.words(2 * trial + 1)[1] >> (i % 4 * 8));

    fault(write(overwritten));

    if (HasFailure()) FAIL() << length << " bytes from byte " << at;
  }
}

TEST_F(Damage, ByTruncationIsAlwaysFound) {
  for (std::size_t length = 0; length < whole_.size(); length += 61) {
    EXPECT_TRUE(fault(write(whole_.substr(0, length))).has_value()) << length << " of " << whole_.size() << " bytes";
  }
}

TEST_F(Damage, IsNotWhatAFileOfAnotherKindHas) {
  const auto other = folder_.write("notes.txt", "not HDF5 at all");
  write_trace(folder_ / "trace.h5", {"gpipe", 1, {}, {}});

  EXPECT_EQ(fault(other), other +
                              " is not a checkpoint of Penstock (not an HDF5 file); expected "
                              "checkpoints/step_*.h5 of a run's folder");
  EXPECT_THAT(*fault(folder_ / "trace.h5"), HasSubstr("is not a checkpoint of Penstock (without /parameters)"));
  EXPECT_THAT(*fault(folder_ / "gone.h5"), HasSubstr("gone.h5: No such file or directory"));
}

TEST_F(Damage, ToTheEndOfALongDataSetNamesItsChunk) {
  const CheckpointContents contents{example_header(1), {{"parameters/table", 5, chunk_elements / 2, false}}};
  const auto saved = everything(contents);
  const auto path = write_checkpoint(Communicator::self(), {folder_.path(), 9}, contents, saved.pieces).path;
  std::string bytes = folder_.read(std::filesystem::path{path}.filename().string());
  const std::string_view tail{reinterpret_cast<const char*>(saved.pieces[0].data + 2 * chunk_elements), 64};
  bytes[bytes.find(tail)] ^= 1;
  const auto damaged = write(bytes);
  Pieces<float> before;
  before.add(0, 0, 2 * chunk_elements);
  Pieces<float> last;
  last.add(0, 2 * chunk_elements, 1);

  EXPECT_NO_THROW(load_checkpoint(damaged, contents.datasets, before.pieces)) << "chunks that are whole load";
  try {
    load_checkpoint(damaged, contents.datasets, last.pieces);
    FAIL() << "loaded a damaged chunk";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/parameters/table is damaged in chunk 2 of 3 (elements [2097152, 2621440))"));
  }
}

}  // namespace
}  // namespace penstock
