// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/helpers.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// GPipe on one rank with two micro-batches: the activations of both are live at once, 1 MiB each.
RankPlan two_micro_batches(BufferKind large) {
  const Schedule schedule = complete(gpipe({.pipeline = 1, .virtual_stages = 1, .micro_batches = 2}), {});
  auto bytes = uniform_bytes(1, 256);
  bytes[Stage{0}][static_cast<std::size_t>(large)] = Bytes{1 << 20};
  return plan_alone(schedule, Rank{0}, bytes);
}

std::string refusal(const RankPlan& plan, Bytes capacity) {
  try {
    check_capacity(plan, capacity);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    return error.what();
  }
  return "fits";
}

TEST(CheckCapacity, AcceptsThePeakToTheByte) {
  const RankPlan plan = two_micro_batches(BufferKind::activations);

  EXPECT_EQ(refusal(plan, plan.peak), "fits");
  EXPECT_NE(refusal(plan, plan.peak - Bytes{1}), "fits");
}

TEST(CheckCapacity, TellsWhatTakesTheBytesLargestFirst) {
  const std::string message = refusal(two_micro_batches(BufferKind::activations), Bytes{1 << 20});

  EXPECT_THAT(message, AllOf(HasSubstr("rank 0"), HasSubstr("memory.device is 1.0 MiB"),
                             HasSubstr("2 x    1.0 MiB =    2.0 MiB")));
  EXPECT_LT(message.find("activations"), message.find("parameters"));
}

TEST(CheckCapacity, TellsWhatToChangeForWhatIsLargest) {
  EXPECT_THAT(refusal(two_micro_batches(BufferKind::activations), Bytes{1}), HasSubstr("memory.recompute: full"));
  EXPECT_THAT(refusal(two_micro_batches(BufferKind::parameters), Bytes{1}), HasSubstr("more pipeline ranks"));
  EXPECT_THAT(refusal(two_micro_batches(BufferKind::logits), Bytes{1}), HasSubstr("smaller training.micro_batch"));
}

TEST(MemoryTable, AddsUpToThePeak) {
  const Schedule schedule = complete(interleaved({.pipeline = 2, .virtual_stages = 2, .micro_batches = 3}), {});
  const RankPlan plan = plan_alone(schedule, Rank{1}, random_bytes(4, 3));

  Bytes sum = plan.unused_at_peak;
  for (const MemoryUse& use : plan.table) sum += use.total();
  Bytes by_kind = plan.unused_at_peak;
  for (const auto& [kind, bytes] : plan.at_peak) by_kind += bytes;

  EXPECT_EQ(sum, plan.peak);
  EXPECT_EQ(by_kind, plan.peak);
  EXPECT_GE(plan.unused_at_peak, Bytes{0});
  for (std::size_t i = 1; i < plan.table.size(); ++i) EXPECT_GE(plan.table[i - 1].total(), plan.table[i].total());
}

}  // namespace
}  // namespace penstock
