// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "support/temporary_directory.hpp"
#include "trace/example.hpp"

namespace penstock {
namespace {

using testing::gpipe_timeline;
using ::testing::HasSubstr;

class TraceFile : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  /// Removed before it is written: ext4 waits for the disk when a file that was emptied is closed.
  std::string write_bytes(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(path(name));
    return folder_.write(name, bytes);
  }
  const test::TemporaryDirectory folder_;
};

bool equal(const Span& a, const Span& b) {
  return a.step == b.step && a.rank == b.rank && a.lane == b.lane && a.peer == b.peer && a.action == b.action &&
         a.start == b.start && a.end == b.end && a.bytes == b.bytes && a.waited == b.waited;
}

bool equal(const MemorySample& a, const MemorySample& b) {
  return a.step == b.step && a.rank == b.rank && a.time == b.time && a.in_use == b.in_use;
}

bool equal(const Timeline& a, const Timeline& b) {
  const auto spans_equal = [](const auto& x, const auto& y) { return equal(x, y); };
  return a.schedule == b.schedule && a.ranks == b.ranks &&
         std::equal(a.spans.begin(), a.spans.end(), b.spans.begin(), b.spans.end(), spans_equal) &&
         std::equal(a.memory.begin(), a.memory.end(), b.memory.begin(), b.memory.end(), spans_equal);
}

/// The message of the Error that reading throws; empty if it reads.
std::string reading_fault(const std::string& path) {
  try {
    read_trace(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    return error.what();
  }
  return {};
}

TEST_F(TraceFile, ReadsBackEveryFieldToTheBit) {
  auto timeline = gpipe_timeline(3, 4, 0.1);
  timeline.schedule = "interleaved v=2 <\xC3\xA9>";
  timeline.spans.push_back(testing::message(1, Op::send_backward, 0, 3, 0.1, 0.7));
  timeline.spans.back().action.slice = Slice{2};
  timeline.spans.back().step = 7;
  timeline.spans.push_back(testing::span(1, Op::backward_weight, 3, 0.7, 0.8));
  timeline.spans.back().action.part = 255;
  timeline.spans.back().waited = {0.03};

  write_trace(path("trace.h5"), timeline);

  EXPECT_TRUE(equal(read_trace(path("trace.h5")), timeline));
}

TEST_F(TraceFile, KeepsEveryOpAndLane) {
  Timeline timeline{"all", 1, {}, {}};
  for (int op = 0; op < op_count; ++op) timeline.spans.push_back(testing::span(0, static_cast<Op>(op), op, op, op + 1));
  for (int lane = 0; lane < lane_count; ++lane)
    timeline.spans[static_cast<std::size_t>(lane)].lane = static_cast<Lane>(lane);

  write_trace(path("trace.h5"), timeline);

  EXPECT_TRUE(equal(read_trace(path("trace.h5")), timeline));
}

TEST_F(TraceFile, HoldsATimelineWithoutSpans) {
  write_trace(path("trace.h5"), {"", 2, {}, {}});

  EXPECT_TRUE(equal(read_trace(path("trace.h5")), {"", 2, {}, {}}));
}

TEST_F(TraceFile, ReplacesTheFileBefore) {
  write_trace(path("trace.h5"), gpipe_timeline(2, 2));
  write_trace(path("trace.h5"), gpipe_timeline(3, 5));

  EXPECT_TRUE(equal(read_trace(path("trace.h5")), gpipe_timeline(3, 5)));
  EXPECT_FALSE(std::filesystem::exists(path("trace.h5.partial")));
}

TEST_F(TraceFile, SaysWhichFolderCannotBeWritten) {
  try {
    write_trace(path("no/such/trace.h5"), gpipe_timeline(1, 1));
    FAIL() << "written into a missing folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::cannot_write);
    EXPECT_THAT(error.what(), HasSubstr(path("no/such/trace.h5")));
  }
}

TEST_F(TraceFile, NamesAFileThatIsMissingOrNoTrace) {
  write_bytes("text.h5", "not HDF5 at all");

  EXPECT_THAT(reading_fault(path("missing.h5")), HasSubstr(path("missing.h5") + ": No such file or directory"));
  EXPECT_EQ(reading_fault(path("text.h5")), path("text.h5") +
                                                " is not a trace of Penstock (not an HDF5 file); expected "
                                                "trace.h5 of a run's folder");
}

TEST_F(TraceFile, NoticesEveryTruncation) {
  write_trace(path("trace.h5"), gpipe_timeline(4, 8));
  const std::string whole = folder_.read("trace.h5");

  for (std::size_t length = 0; length < whole.size(); length += 97) {
    write_bytes("cut.h5", whole.substr(0, length));
    EXPECT_THAT(reading_fault(path("cut.h5")), HasSubstr(path("cut.h5"))) << length << " bytes";
  }
}

TEST_F(TraceFile, ReadsTheSameOrRefusesWhateverBitIsFlipped) {
  const auto timeline = gpipe_timeline(4, 8);
  write_trace(path("trace.h5"), timeline);
  const std::string whole = folder_.read("trace.h5");

  int refused = 0;
  for (std::size_t offset = 0; offset < whole.size(); offset += 1) {
    std::string flipped = whole;
    flipped[offset] = static_cast<char>(flipped[offset] ^ (1 << offset % 8));
    write_bytes("flipped.h5", flipped);
    try {
      EXPECT_TRUE(equal(read_trace(path("flipped.h5")), timeline)) << "byte " << offset;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path("flipped.h5")));
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_F(TraceFile, RefusesRowsThatCannotBe) {
  auto timeline = gpipe_timeline(2, 2);
  timeline.spans[3].rank = 5;
  write_trace(path("trace.h5"), timeline);

  EXPECT_THAT(reading_fault(path("trace.h5")), HasSubstr("row 3 of /spans"));
}

}  // namespace
}  // namespace penstock
