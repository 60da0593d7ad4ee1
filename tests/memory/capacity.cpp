// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/helpers.hpp"
#include "schedule/generators.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// GPipe on one rank with two micro-batches: the activations of both are live at once.
Schedule gpipe_of_two(const CompletionOptions& options = {}) {
  return complete(gpipe({.pipeline = 1, .virtual_stages = 2, .micro_batches = 2}), options);
}

/// What the user reads where all buffers have 256 bytes, but those of one kind 1 MiB.
std::string refusal_of(const Schedule& schedule, BufferKind large, Bytes capacity = Bytes{1}) {
  auto bytes = uniform_bytes(schedule.shape.stages, 256);
  for (StageBytes& of_stage : bytes) of_stage[static_cast<std::size_t>(large)] = Bytes{1 << 20};
  try {
    check_capacity(plan_alone(schedule, Rank{0}, bytes), capacity);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    return error.what();
  }
  return "fits";
}

TEST(CheckCapacity, AcceptsThePeakToTheByte) {
  const Schedule schedule = gpipe_of_two();
  const RankPlan plan = plan_alone(schedule, Rank{0}, uniform_bytes(2, 256));

  EXPECT_NO_THROW(check_capacity(plan, plan.peak));
  EXPECT_THROW(check_capacity(plan, plan.peak - Bytes{1}), Error);
}

TEST(CheckCapacity, TellsWhatTakesTheBytesLargestFirst) {
  const std::string message = refusal_of(gpipe_of_two(), BufferKind::activations, Bytes{1 << 20});

  EXPECT_THAT(message, AllOf(HasSubstr("rank 0"), HasSubstr("memory.device is 1.0 MiB"),
                             HasSubstr("4 x    1.0 MiB =    4.0 MiB")));
  EXPECT_LT(message.find("activations"), message.find("parameters"));
}

TEST(CheckCapacity, AsksForAdviceOnlyWhereThePlanDoesNotFit) {
  const RankPlan plan = plan_alone(gpipe_of_two(), Rank{0}, uniform_bytes(2, 256));
  int asked = 0;
  const Advice advice = [&] {
    ++asked;
    return std::string{"Use another machine.\n"};
  };

  check_capacity(plan, plan.peak, "memory.device", advice);
  EXPECT_EQ(asked, 0);
  try {
    check_capacity(plan, Bytes{1}, "memory.device", advice);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(memory_table(plan) + "Use another machine.\nIt would fit in"));
  }
}

TEST(MemoryTable, TellsThePlacesOfStagesThatComeAndGoFromHoles) {
  const Schedule streamed = gpipe_of_two({.stream_parameters = true, .resident_stages = 2});
  auto bytes = uniform_bytes(2, 256);
  for (StageBytes& of_stage : bytes) of_stage[static_cast<std::size_t>(BufferKind::gradients)] = Bytes{1 << 20};
  const RankPlan plan = plan_alone(streamed, Rank{0}, bytes);
  const RankPlan resident = plan_alone(gpipe_of_two(), Rank{0}, bytes);

  // The peak is first reached by a forward, when no gradients are there: their place waits for them.
  EXPECT_GE(plan.awaiting_stages, Bytes{1 << 20});
  EXPECT_LE(plan.awaiting_stages, plan.unused_at_peak);
  EXPECT_THAT(memory_table(plan), HasSubstr("kept for stages that come and go"));
  EXPECT_EQ(resident.awaiting_stages, Bytes{0});
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
