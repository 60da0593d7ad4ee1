// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/helpers.hpp"
#include "schedule/sliced_generators.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// GPipe on one rank with two micro-batches: the activations of both are live at once.
Schedule gpipe_of_two(const CompletionOptions& options = {}) {
  return complete(gpipe({.pipeline = 1, .virtual_stages = 2, .micro_batches = 2}), options);
}

/// What the user reads where all buffers have 256 bytes, but those of one kind 1 MiB.
std::string refusal_of(const Schedule& schedule, BufferKind large, Bytes capacity = Bytes{1}) {
  auto bytes = uniform_bytes(schedule.shape.stages, 256);
  for (StageBytes& of_stage : bytes) of_stage[static_cast<std::size_t>(large)] = Bytes{1 << 20};
  try {
    check_capacity(plan_alone(schedule, Rank{0}, bytes), schedule, capacity);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    return error.what();
  }
  return "fits";
}

TEST(CheckCapacity, AcceptsThePeakToTheByte) {
  const Schedule schedule = gpipe_of_two();
  const RankPlan plan = plan_alone(schedule, Rank{0}, uniform_bytes(2, 256));

  EXPECT_NO_THROW(check_capacity(plan, schedule, plan.peak));
  EXPECT_THROW(check_capacity(plan, schedule, plan.peak - Bytes{1}), Error);
}

TEST(CheckCapacity, TellsWhatTakesTheBytesLargestFirst) {
  const std::string message = refusal_of(gpipe_of_two(), BufferKind::activations, Bytes{1 << 20});

  EXPECT_THAT(message, AllOf(HasSubstr("rank 0"), HasSubstr("memory.device is 1.0 MiB"),
                             HasSubstr("4 x    1.0 MiB =    4.0 MiB")));
  EXPECT_LT(message.find("activations"), message.find("parameters"));
}

TEST(CheckCapacity, TellsWhatToChangeForWhatIsLargest) {
  EXPECT_THAT(refusal_of(gpipe_of_two(), BufferKind::activations), HasSubstr("memory.recompute: full"));
  EXPECT_THAT(refusal_of(gpipe_of_two(), BufferKind::activations), HasSubstr("memory.offload_activations: 1"));
  EXPECT_THAT(refusal_of(gpipe_of_two(), BufferKind::parameters),
              AllOf(HasSubstr("memory.parameters: host"), HasSubstr("more pipeline ranks")));
  EXPECT_THAT(refusal_of(gpipe_of_two(), BufferKind::logits), HasSubstr("smaller training.micro_batch"));
}

TEST(CheckCapacity, AdvisesNothingThatIsSoAlready) {
  const Schedule recomputed = gpipe_of_two({.recompute = PerStage<bool>(2, true)});
  const Schedule offloaded = gpipe_of_two({.offload_nearest = 1});
  const Schedule sliced = complete(terapipe({.pipeline = 1, .micro_batches = 2, .slices = 4}), {});

  EXPECT_THAT(refusal_of(recomputed, BufferKind::activations),
              AllOf(Not(HasSubstr("recompute")), Not(HasSubstr("offload")), HasSubstr("a smaller training.")));
  EXPECT_THAT(refusal_of(offloaded, BufferKind::activations),
              AllOf(HasSubstr("memory.recompute: full"), Not(HasSubstr("offload_activations"))));
  EXPECT_THAT(refusal_of(sliced, BufferKind::activations),
              AllOf(HasSubstr("more schedule.slices"), Not(HasSubstr("gpipe"))));
}

TEST(CheckCapacity, AdvisesToHoldFewerStagesWhereSeveralAreThereAtThePeak) {
  const Schedule two = gpipe_of_two({.stream_parameters = true, .resident_stages = 2});
  const Schedule one = gpipe_of_two({.stream_parameters = true, .resident_stages = 1});

  for (const BufferKind large : {BufferKind::parameters, BufferKind::activations}) {
    EXPECT_THAT(refusal_of(two, large), HasSubstr("memory.resident_stages: 1"));
    EXPECT_THAT(refusal_of(one, large), Not(HasSubstr("resident_stages")));
  }
  EXPECT_THAT(refusal_of(two, BufferKind::parameters),
              AllOf(HasSubstr("more virtual stages"), Not(HasSubstr("memory.parameters"))));
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
