// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/helpers.hpp"

namespace penstock {
namespace {

constexpr GeneratorOptions two_by_two{.pipeline = 2, .virtual_stages = 2, .micro_batches = 3};

std::vector<std::string> names(const PersistentLayout& layout) {
  std::vector<std::string> result;
  for (const PlannedBuffer& planned : layout.buffers) {
    result.push_back(fmt::format("{} {}", name_of(planned.buffer.kind), planned.buffer.stage));
  }
  return result;
}

Bytes bytes_of(const PersistentLayout& layout, BufferKind kind) {
  Bytes sum{0};
  for (const PlannedBuffer& planned : layout.buffers) {
    if (planned.buffer.kind == kind) sum += planned.bytes;
  }
  return sum;
}

TEST(LayOutPersistent, HoldsTheStagesOfTheRankAndOneWorkspace) {
  const Schedule schedule = interleaved(two_by_two);
  auto bytes = uniform_bytes(4, 256);
  for (StageBytes& stage : bytes) stage[static_cast<std::size_t>(BufferKind::optimizer_states)] = Bytes{0};

  EXPECT_THAT(
      names(lay_out_persistent({&schedule}, Rank{0}, {bytes})),
      testing::ElementsAre("parameters 0", "parameters 2", "gradients 0", "gradients 2", "tokens 0", "workspace 0"));
  EXPECT_THAT(
      names(lay_out_persistent({&schedule}, Rank{1}, {bytes})),
      testing::ElementsAre("parameters 1", "parameters 3", "gradients 1", "gradients 3", "tokens 3", "workspace 0"));
}

TEST(LayOutPersistent, HoldsTheStatesOfAnOptimizerOnTheDevice) {
  Schedule schedule = interleaved(two_by_two);

  EXPECT_THAT(names(lay_out_persistent({&schedule}, Rank{0}, {uniform_bytes(4, 256)})),
              testing::IsSupersetOf({"optimizer_states 0", "optimizer_states 2"}));
  schedule.forward_only = true;
  EXPECT_THAT(names(lay_out_persistent({&schedule}, Rank{0}, {uniform_bytes(4, 256)})),
              testing::Not(testing::Contains("optimizer_states 0")));
}

TEST(LayOutPersistent, PutsBuffersOneBehindTheOtherOnAlignedOffsets) {
  const Schedule schedule = interleaved(two_by_two);
  const PersistentLayout layout = lay_out_persistent({&schedule}, Rank{0}, {random_bytes(4, 1)});

  Bytes end{0};
  for (const PlannedBuffer& planned : layout.buffers) {
    EXPECT_EQ(planned.offset, end);
    EXPECT_EQ(planned.bytes.value % buffer_alignment, 0);
    end = planned.offset + planned.bytes;
  }
  EXPECT_EQ(layout.bytes, end);
}

TEST(LayOutPersistent, HoldsTheTokensOfAllMicroBatchesAndTheLargestWorkspace) {
  const Schedule schedule = interleaved(two_by_two);
  auto bytes = uniform_bytes(4, 256);
  bytes[Stage{2}][static_cast<std::size_t>(BufferKind::workspace)] = Bytes{1000};

  const PersistentLayout layout = lay_out_persistent({&schedule}, Rank{0}, {bytes});

  EXPECT_EQ(bytes_of(layout, BufferKind::tokens), Bytes{3 * 256});
  EXPECT_EQ(bytes_of(layout, BufferKind::workspace), Bytes{1024});
}

TEST(LayOutPersistent, HasNoGradientsIfNothingIsTrained) {
  const Schedule schedule = forward_only(dealt(2, 2), 3);

  EXPECT_EQ(bytes_of(lay_out_persistent({&schedule}, Rank{0}, {uniform_bytes(4, 256)}), BufferKind::gradients),
            Bytes{0});
}

TEST(LayOutPersistent, ServesSeveralSchedulesWithTheLargestOfEach) {
  const Schedule training = interleaved(two_by_two);
  const Schedule validation = forward_only(dealt(2, 2), 10);
  auto larger = uniform_bytes(4, 256);
  for (StageBytes& each : larger) each[static_cast<std::size_t>(BufferKind::workspace)] = Bytes{4096};

  const PersistentLayout layout =
      lay_out_persistent({&training, &validation}, Rank{0}, {uniform_bytes(4, 256), larger});

  EXPECT_EQ(bytes_of(layout, BufferKind::tokens), Bytes{10 * 256});
  EXPECT_EQ(bytes_of(layout, BufferKind::workspace), Bytes{4096});
  EXPECT_EQ(bytes_of(layout, BufferKind::gradients), Bytes{2 * 256});
}

TEST(LayOutPersistent, RefusesSchedulesOfDifferentLayouts) {
  const Schedule training = interleaved(two_by_two);
  const Schedule other = gpipe({.pipeline = 4});

  EXPECT_THROW(lay_out_persistent({&training, &other}, Rank{0}, {uniform_bytes(4, 1), uniform_bytes(4, 1)}), Error);
  EXPECT_THROW(lay_out_persistent({&training}, Rank{0}, {uniform_bytes(3, 1)}), Error);
  EXPECT_THROW(lay_out_persistent({}, Rank{0}, {}), Error);
}

}  // namespace
}  // namespace penstock
