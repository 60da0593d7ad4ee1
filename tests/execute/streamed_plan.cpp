// SPDX-License-Identifier: Apache-2.0
//
// Plans of runs whose parameters come from the host, and whose passes may have stages of their own.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/host_stages.hpp"
#include "execute/parameter_fetch.hpp"
#include "execute/tiny_run.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::plan_of;
using test::Tied;
using test::tiny_model;
using test::tiny_run;

/// Two ranks; eight layers in two forward stages and six backward stages of 2, 2, 1, 1, 1, 1.
RunShape spipe(Family family, Tied tied = Tied::no, Precision precision = Precision::fp32) {
  RunShape shape = tiny_run(tiny_model(family, tied, precision), 2);
  shape.schedule = {.kind = ScheduleKind::spipe, .forward_virtual = 1, .backward_virtual = 3};
  return shape;
}

TEST(DecoupledPasses, LeaveACheckpointBeforeEachBackwardStage) {
  const RunPlan plan = plan_of(spipe(Family::llama));

  EXPECT_THAT(plan.training.stages[Stage{0}].checkpoints, ElementsAre(Layer{2}));
  EXPECT_THAT(plan.training.stages[Stage{1}].checkpoints, ElementsAre(Layer{4}, Layer{5}, Layer{6}, Layer{7}));
  EXPECT_THAT(plan.training.backward_stages[Stage{5}].checkpoints, IsEmpty());
  EXPECT_EQ(plan.training.stages_of(Pass::backward).size(), 6);
  EXPECT_EQ(plan.validation.stages_of(Pass::backward).size(), 2);
}

TEST(DecoupledPasses, HaveTokensOfBothEndsWhereStagesShareANumber) {
  RunShape shape = tiny_run(tiny_model(Family::llama, Tied::no), 1);
  shape.schedule = {.kind = ScheduleKind::spipe, .forward_virtual = 1, .backward_virtual = 2};
  const RunPlan plan = plan_of(shape);

  // Forward stage 0 is first and last, backward stage 0 first alone: their one buffer has inputs and targets.
  EXPECT_EQ(plan.training.tokens_of(Stage{0}).count(), 2);
  EXPECT_EQ(plan.training.tokens_of(Stage{1}).count(), 1);
  const auto tokens = static_cast<std::size_t>(BufferKind::tokens);
  EXPECT_EQ(plan.training.bytes[Stage{0}][tokens],
            StageMath{plan.training.stages[Stage{0}]}.layout(BufferKind::tokens).bytes);
}

/// Where each parameter of a forward stage comes from, by name: "stage, byte of its working copy".
std::map<std::string, std::string> sources_of(const RunPlan& plan, Stage stage) {
  std::map<std::string, std::string> sources;
  const auto pieces = fetched_pieces(plan, Pass::forward, stage);
  for (const TensorSlot& slot : StageMath{plan.training.stages[stage]}.layout(BufferKind::parameters).tensors) {
    const Bytes end = slot.offset + Bytes{slot.rows * slot.columns * size_of(slot.type)};
    for (const FetchedPiece& piece : pieces) {
      if (slot.offset < piece.to || end > piece.to + piece.bytes) continue;
      EXPECT_EQ(sources.count(slot.name), 0U) << slot.name << " comes twice";
      sources[slot.name] = fmt::format("{}, {}", piece.source, (piece.from + (slot.offset - piece.to)).value);
    }
  }
  return sources;
}

/// Where each parameter is stepped, in the same words.
std::map<std::string, std::string> places_of(const RunPlan& plan) {
  std::map<std::string, std::string> places;
  for (const Stage stage : all<Stage>(plan.training.stages_of(Pass::backward).size())) {
    for (const HostParameter& entry : host_stage_shape(plan, stage, 0).parameters) {
      if (entry.mastered) places[entry.parameter.name] = fmt::format("{}, {}", stage, entry.working_offset.value);
    }
  }
  return places;
}

TEST(DecoupledPasses, FetchEveryParameterFromTheStageThatStepsIt) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const auto& [family, tied] :
         {std::pair{Family::llama, Tied::no}, {Family::llama, Tied::yes}, {Family::gpt2, Tied::yes}}) {
      const RunPlan plan = plan_of(spipe(family, tied, precision));
      const auto places = places_of(plan);
      for (const Stage stage : all<Stage>(2)) {
        const StageShape& shape = plan.training.stages[stage];
        const auto sources = sources_of(plan, stage);
        const auto parameters = parameters_of_stage(shape.model, shape.begin, shape.end, shape.first, shape.last);
        ASSERT_EQ(sources.size(), parameters.size());
        for (const Parameter& parameter : parameters) {
          EXPECT_EQ(sources.at(parameter.name), places.at(parameter.name)) << parameter.name;
        }
      }
    }
  }
}

TEST(DecoupledPasses, FetchALayerInOnePiece) {
  const RunPlan plan = plan_of(spipe(Family::llama));

  // Backward stages 2 to 5 have one layer each, the last the head too.
  EXPECT_EQ(fetched_pieces(plan, Pass::forward, Stage{1}).size(), 4U);
  EXPECT_EQ(fetched_pieces(plan, Pass::backward, Stage{1}).size(), 1U);
}

TEST(StreamedParameters, AreOnTheDeviceBetweenFetchAndEvictionAlone) {
  RunShape shape = tiny_run(tiny_model(Family::llama, Tied::no), 2);
  shape.schedule = {.kind = ScheduleKind::interleaved, .virtual_stages = 4};
  const auto peak = [&] { return plan_of(shape).planned_device_bytes(Rank{1}); };
  const Bytes resident = peak();
  shape.stream_parameters = true;
  const Bytes two_stages = peak();
  shape.resident_stages = 1;
  const Bytes one_stage = peak();

  EXPECT_LT(two_stages, resident);
  EXPECT_LT(one_stage, two_stages);
}

TEST(StreamedParameters, ThatDoNotFitAreToldByStage) {
  RunShape shape = spipe(Family::llama);
  shape.device_capacity = Bytes{1000};
  const RunPlan plan = plan_of(shape);

  std::string message;
  try {
    check_fits(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    message = error.what();
  }

  const auto bytes = [&](BufferKind kind, std::int32_t stage) {
    return to_text(plan.training.bytes[Stage{stage}][static_cast<std::size_t>(kind)]);
  };
  const Rank rank = plan.planned_device_bytes(Rank{0}) < plan.planned_device_bytes(Rank{1}) ? Rank{1} : Rank{0};
  EXPECT_THAT(message, HasSubstr(fmt::format("of the forward pass, {}, has {} of parameters", rank,
                                             bytes(BufferKind::parameters, rank.value()))));
  EXPECT_THAT(message, HasSubstr("memory.resident_stages 2"));
  EXPECT_THAT(message, HasSubstr(fmt::format("It would fit in {} bytes", plan.planned_device_bytes(rank).value)));
}

}  // namespace
}  // namespace penstock
