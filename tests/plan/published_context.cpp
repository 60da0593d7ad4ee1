// SPDX-License-Identifier: Apache-2.0
//
// The longest contexts of Llama 7B on 64 devices of 80 GB (methods 3.7): doc/published_figures.md has the table.
#include <gtest/gtest.h>

#include "config/hardware_file.hpp"
#include "plan/published_runs.hpp"

namespace penstock::published {
namespace {

/// What the fullest rank takes at the published length of 1F1B: all else of the 80 GB is the one fitted reserve.
Bytes room(const HardwareOptions& hardware) {
  return fullest_rank(context_run(hardware, ScheduleKind::one_f_one_b, context_1f1b));
}

TEST(PublishedContext, LeavesAReserveThatAnAllocatorCanBeExpectedToTake) {
  const HardwareOptions hardware = read_hardware(HARDWARE_FOLDER "/h100.yaml");

  const Bytes reserve = hardware.device.memory - room(hardware);

  EXPECT_GT(reserve, Bytes{std::int64_t{5} << 30});
  EXPECT_LT(reserve, Bytes{std::int64_t{16} << 30});
}

TEST(PublishedContext, OfSlimPipeIsAtLeast48TenthsOfThatOf1F1B) {
  const HardwareOptions hardware = read_hardware(HARDWARE_FOLDER "/h100.yaml");

  const std::int32_t one_f_one_b = longest_context(hardware, ScheduleKind::one_f_one_b, room(hardware));
  const std::int32_t slimpipe = longest_context(hardware, ScheduleKind::slimpipe, room(hardware));

  EXPECT_EQ(one_f_one_b, context_1f1b);
  EXPECT_GE(slimpipe, 4.8 * one_f_one_b);
  EXPECT_NEAR(slimpipe, context_slimpipe, 0.13 * context_slimpipe);
}

TEST(PublishedContext, OfInterleaved1F1BIsTheShortest) {
  const HardwareOptions hardware = read_hardware(HARDWARE_FOLDER "/h100.yaml");

  const std::int32_t interleaved = longest_context(hardware, ScheduleKind::interleaved, room(hardware));

  EXPECT_LT(interleaved, context_1f1b);
  EXPECT_NEAR(interleaved, context_interleaved, 0.13 * context_interleaved);
}

}  // namespace
}  // namespace penstock::published
