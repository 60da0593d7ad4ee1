// SPDX-License-Identifier: Apache-2.0
#include "execute/run_plan.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/tiny_run.hpp"
#include "schedule/generators.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using test::plan_of;
using test::Tied;
using test::tiny_model;
using test::tiny_run;

ModelSpec llama() {
  return tiny_model(Family::llama, Tied::no);
}

std::string error_of(ExitCode code, const RunShape& shape) {
  try {
    plan_of(shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Families, heads and precisions x ranks x schedules x recompute x split.
std::vector<RunShape> all_shapes() {
  std::vector<RunShape> shapes;
  for (const auto& model : {tiny_model(Family::llama, Tied::no), tiny_model(Family::llama, Tied::yes, Precision::bf16),
                            tiny_model(Family::gpt2, Tied::yes), tiny_model(Family::gpt2, Tied::no, Precision::bf16)}) {
    for (const std::int32_t pipeline : {1, 2, 3, 4}) {
      for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
        for (const auto& [recompute, name] : enum_names(Recompute{})) {
          auto shape = tiny_run(model, pipeline);
          shape.schedule.kind = kind;
          shape.schedule.virtual_stages = kind == ScheduleKind::interleaved ? 2 : 1;
          shape.schedule.split_backward = pipeline % 2 == 0;
          shape.recompute = recompute;
          shapes.push_back(shape);
        }
      }
      auto streamed = tiny_run(model, pipeline);
      streamed.stream_parameters = true;
      shapes.push_back(streamed);
      streamed.schedule = {.kind = ScheduleKind::spipe, .forward_virtual = 1, .backward_virtual = 2};
      shapes.push_back(streamed);
    }
  }
  return shapes;
}

/// The highest end of any buffer of the walk, and that none overlaps another.
Bytes highest_end(const RankPlan& plan) {
  std::map<SymbolicBuffer, PlannedBuffer> live;
  Bytes highest{0};
  const auto take = [&](const PlannedBuffer& taken) {
    for (const auto& [key, other] : live) {
      EXPECT_TRUE(taken.offset + taken.bytes <= other.offset || other.offset + other.bytes <= taken.offset)
          << name_of(taken.buffer.kind) << " lies on " << name_of(key.kind);
    }
    live[taken.buffer] = taken;
    highest = std::max(highest, taken.offset + taken.bytes);
  };
  std::for_each(plan.persistent.begin(), plan.persistent.end(), take);
  for (const auto& action : plan.actions) {
    std::for_each(action.takes.begin(), action.takes.end(), take);
    for (const auto& freed : action.frees) EXPECT_EQ(live.erase(freed), 1U);
  }
  EXPECT_EQ(live.size(), plan.persistent.size());
  return highest;
}

TEST(ARunPlan, HasThePeakOfItsWalks) {
  for (const auto& shape : all_shapes()) {
    const auto plan = plan_of(shape);
    for (const Rank rank : all<Rank>(shape.pipeline)) {
      Bytes largest{0};
      for (const auto* planned : {&plan.training, &plan.validation, &plan.generation}) {
        EXPECT_EQ(planned->ranks[rank].peak, highest_end(planned->ranks[rank]));
        largest = std::max(largest, planned->ranks[rank].peak);
      }
      EXPECT_EQ(plan.planned_device_bytes(rank), largest);
    }
  }
}

TEST(ARunPlan, KeepsPersistentBuffersAtOnePlaceInAllItsSchedules) {
  for (const auto& shape : all_shapes()) {
    const auto plan = plan_of(shape);
    for (const Rank rank : all<Rank>(shape.pipeline)) {
      const auto& buffers = plan.persistent[rank].buffers;
      for (const auto* planned : {&plan.training, &plan.validation, &plan.generation}) {
        const auto& own = planned->ranks[rank].persistent;
        ASSERT_EQ(own.size(), buffers.size());
        for (std::size_t i = 0; i < own.size(); ++i) {
          EXPECT_EQ(own[i].buffer, buffers[i].buffer);
          EXPECT_EQ(own[i].offset, buffers[i].offset);
          EXPECT_EQ(own[i].bytes, buffers[i].bytes);
        }
      }
    }
  }
}

TEST(ARunPlan, RunsEvaluationOverTheStagesOfTraining) {
  auto shape = tiny_run(llama(), 2);
  shape.schedule = {.kind = ScheduleKind::interleaved, .virtual_stages = 2};

  const auto plan = plan_of(shape);

  for (const auto* planned : {&plan.validation, &plan.generation}) {
    EXPECT_TRUE(planned->schedule.forward_only);
    EXPECT_EQ(planned->schedule.rank_of, plan.training.schedule.rank_of);
  }
  EXPECT_EQ(plan.training.schedule.shape.micro_batches, 4);
  EXPECT_EQ(plan.validation.schedule.shape.micro_batches, 4);
  EXPECT_EQ(plan.generation.schedule.shape.micro_batches, 1);
  EXPECT_EQ(plan.generation.stages[Stage{3}].sequences, 1);
}

TEST(ARunPlan, LeavesTheLogitsAtTheEndOfTheLastWorkspace) {
  const auto plan = plan_of(tiny_run(tiny_model(Family::gpt2, Tied::yes, Precision::bf16), 3));
  const Stage last = plan.generation.schedule.last_stage();
  const Bytes logits = generation_logits_bytes(plan.shape.model);

  EXPECT_EQ(logits.value, buffer_alignment);  // 19 of fp32, of one position
  EXPECT_EQ(generation_logits_offset(plan) + logits,
            plan.generation.bytes[last][static_cast<std::size_t>(BufferKind::workspace)]);
}

TEST(ARunPlan, EvaluatesInTheSlicesOfTraining) {
  auto shape = tiny_run(llama(), 2);
  shape.sequence = 60;
  const auto whole = plan_of(shape);
  shape.schedule = {.kind = ScheduleKind::slimpipe, .slices = 4};

  const auto sliced = plan_of(shape);

  for (const Rank rank : all<Rank>(2)) {
    for (const auto* planned : {&sliced.validation, &sliced.generation}) {
      EXPECT_EQ(planned->schedule.shape.slices, 4);
      EXPECT_EQ(planned->stages[Stage{1}].slices, 4);
      EXPECT_LE(planned->ranks[rank].peak, sliced.training.ranks[rank].peak);
    }
    // Nothing is as long as a sequence but the keys and values, and the tokens.
    EXPECT_LT(sliced.validation.ranks[rank].peak, whole.validation.ranks[rank].peak);
  }
}

// --- what memory follows from
// -------------------------------------------------------------------------------------------

TEST(ARunPlan, NeedsLessWhereItRecomputes) {
  for (const auto& model : {llama(), tiny_model(Family::gpt2, Tied::yes, Precision::bf16)}) {
    auto shape = tiny_run(model, 2);
    shape.schedule.kind = ScheduleKind::gpipe;
    const auto none = plan_of(shape);
    shape.recompute = Recompute::full;
    const auto full = plan_of(shape);

    for (const Rank rank : all<Rank>(2)) {
      EXPECT_LT(full.training.ranks[rank].peak, none.training.ranks[rank].peak);
      EXPECT_EQ(full.validation.ranks[rank].peak, none.validation.ranks[rank].peak);
    }
  }
}

/// The bytes above the persistent buffers at `micro_batches`.
std::int64_t transient_bytes(ScheduleKind kind, Recompute recompute, std::int64_t micro_batches) {
  auto shape = tiny_run(llama(), 2);
  shape.schedule.kind = kind;
  shape.recompute = recompute;
  shape.global_batch = shape.micro_batch * micro_batches;
  const auto plan = plan_of(shape);
  const auto& rank = plan.training.ranks[Rank{0}];
  return rank.peak.value - rank.persistent_bytes.value;
}

TEST(ARunPlan, GrowsWithTheMicroBatchesThatAScheduleKeeps) {
  const auto gpipe = [](std::int64_t m) { return transient_bytes(ScheduleKind::gpipe, Recompute::none, m); };
  const auto one_f_one_b = [](std::int64_t m) {
    return transient_bytes(ScheduleKind::one_f_one_b, Recompute::none, m);
  };

  // Each micro-batch more keeps as much more.
  EXPECT_GT(gpipe(8), gpipe(4));
  EXPECT_EQ(gpipe(12) - gpipe(8), gpipe(8) - gpipe(4));
  EXPECT_EQ(one_f_one_b(12), one_f_one_b(4));
  EXPECT_LT(one_f_one_b(4), gpipe(4));
}

TEST(ARunPlan, WhichRecomputesGrowsByTheInputsAlone) {
  const auto growth = [](Recompute recompute) {
    return transient_bytes(ScheduleKind::gpipe, recompute, 12) - transient_bytes(ScheduleKind::gpipe, recompute, 8);
  };

  // The first stage's input is its tokens: hardly anything is kept of a micro-batch.
  EXPECT_LT(growth(Recompute::full) * 10, growth(Recompute::none));
}

TEST(ARunPlan, FitsExactlyItsPlannedBytes) {
  auto plan = plan_of(tiny_run(llama(), 2));
  const Bytes most = std::max(plan.planned_device_bytes(Rank{0}), plan.planned_device_bytes(Rank{1}));

  plan.shape.device_capacity = most;
  EXPECT_NO_THROW(check_fits(plan));
  plan.shape.device_capacity = most - Bytes{1};
  try {
    check_fits(plan);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
  }
}

TEST(ARunPlan, ForTextAloneHasNoMemoryOfTraining) {
  for (auto shape : all_shapes()) {
    shape.schedule = {.kind = ScheduleKind::gpipe};  // as many stages as ranks, in both
    const auto of_training = plan_of(shape);
    shape.purpose = Purpose::text;
    const auto of_text = plan_of(shape);

    for (const Rank rank : all<Rank>(shape.pipeline)) {
      EXPECT_EQ(of_text.planned_device_bytes(rank), highest_end(of_text.generation.ranks[rank]));
      if (shape.stream_parameters) continue;  // nothing of training lies beside them there
      EXPECT_LT(of_text.planned_device_bytes(rank), of_training.generation.ranks[rank].peak);
      for (const auto& buffer : of_text.persistent[rank].buffers) {
        EXPECT_NE(buffer.buffer.kind, BufferKind::gradients);
      }
    }
    EXPECT_LT(largest_rank_plan(of_text).peak, largest_rank_plan(of_training).peak);
  }
}

// --- layers and stages
// --------------------------------------------------------------------------------------------------

TEST(ARunPlan, DealsLayersAsListed) {
  auto shape = tiny_run(llama(), 3);
  shape.layers_per_stage = {1, 5, 2};

  const auto plan = plan_of(shape);

  ASSERT_EQ(plan.partition.stages.size(), 3);
  EXPECT_EQ(plan.partition.stages[Stage{1}], (LayerRange{Layer{1}, Layer{6}}));
  EXPECT_EQ(plan.training.stages[Stage{2}].begin, Layer{6});
  EXPECT_TRUE(plan.training.stages[Stage{0}].first);
  EXPECT_TRUE(plan.training.stages[Stage{2}].last);
  EXPECT_FALSE(plan.training.stages[Stage{1}].first || plan.training.stages[Stage{1}].last);
  const auto parameters = static_cast<std::size_t>(BufferKind::parameters);
  EXPECT_GT(plan.training.bytes[Stage{1}][parameters], plan.training.bytes[Stage{2}][parameters]);
}

TEST(ARunPlan, RefusesListedLayersThatDoNotFitTheModelOrTheStages) {
  auto shape = tiny_run(llama(), 3);

  shape.layers_per_stage = {1, 5, 3};
  EXPECT_THAT(error_of(ExitCode::bad_input, shape), AllOf(HasSubstr("9"), HasSubstr("8")));
  shape.layers_per_stage = {4, 4};
  EXPECT_THAT(error_of(ExitCode::bad_input, shape),
              HasSubstr("parallel.layers_per_stage lists 2 stages, but the schedule has 3"));
}

TEST(ARunPlan, RefusesMoreStagesThanLayers) {
  EXPECT_THAT(error_of(ExitCode::bad_input, tiny_run(llama(), 9)), AllOf(HasSubstr("9"), HasSubstr("8")));

  auto shape = tiny_run(llama(), 2);
  shape.schedule = {.kind = ScheduleKind::interleaved, .virtual_stages = 5};
  EXPECT_THAT(error_of(ExitCode::bad_input, shape), AllOf(HasSubstr("10"), HasSubstr("8")));
}

TEST(ARunPlan, RefusesAScheduleFileWithMoreSlicesThanTokens) {
  auto shape = tiny_run(llama(), 1);
  shape.schedule.file = "mine.csv";
  shape.schedule_csv = write_schedule_csv(svpp({.micro_batches = 4, .slices = 7}));

  EXPECT_THAT(error_of(ExitCode::bad_input, shape), HasSubstr("into 7 slices, but training.sequence is 6 tokens"));
}

TEST(ARunPlan, HoldsLessOnTheDeviceTheMoreActivationsWaitOnTheHost) {
  for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::svpp, ScheduleKind::slimpipe}) {
    SCOPED_TRACE(enum_names(kind)[static_cast<std::size_t>(kind)].name);
    auto shape = tiny_run(llama(), 8);
    shape.global_batch = 16 * shape.micro_batch;
    shape.sequence = 512;
    const bool cuts = kind == ScheduleKind::svpp || kind == ScheduleKind::slimpipe;
    shape.schedule = {.kind = kind, .slices = cuts ? 16 : 1};
    Bytes device = plan_of(shape).training.ranks[Rank{0}].peak;
    Bytes host{0};
    for (const double ratio : {0.4, 0.8}) {
      shape.offload_activations = ratio;

      const RankPlan plan = plan_of(shape).training.ranks[Rank{0}];

      EXPECT_LT(plan.peak, device) << ratio;
      EXPECT_GT(plan.host_peak, host) << ratio;
      device = plan.peak;
      host = plan.host_peak;
    }
  }
}

/// The most bytes that a rank's training holds at once of what forwards keep and of the sums of gradients of keys and
/// values.
Bytes most_activation_bytes(const RankPlan& plan) {
  const auto counts = [](BufferKind kind) {
    return kind == BufferKind::activations || kind == BufferKind::key_value_gradients;
  };
  std::map<SymbolicBuffer, Bytes> live;
  Bytes in_use;
  Bytes most;
  for (const auto& action : plan.actions) {
    for (const auto& taken : action.takes) {
      if (!counts(taken.buffer.kind)) continue;
      live[taken.buffer] = taken.bytes;
      in_use += taken.bytes;
    }
    most = std::max(most, in_use);
    for (const auto& freed : action.frees) {
      if (counts(freed.kind)) in_use = in_use - live.at(freed);
    }
  }
  return most;
}

// p = 4, n = 16, grouped queries. Rank 0 keeps 22 of 16 slices where 1F1B keeps 4 micro-batches: 0.344; the sums of
// gradients of 15 slices, 8 h_kv bytes a token and layer beside 12 h + 4 h_kv + 6 f, are the rest.
TEST(ARunPlan, OfSlimPipeKeepsLittleOfWhatOneFOneBKeeps) {
  ModelSpec model = llama();
  model.hidden = 256;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_size = 32;
  model.ffn = 704;
  auto shape = tiny_run(model, 4);
  shape.sequence = 1024;
  shape.micro_batch = 1;
  const auto most = [&](const ScheduleOptions& schedule) {
    shape.schedule = schedule;
    const RunPlan plan = plan_of(shape);
    Bytes bytes;
    for (const auto& rank : plan.training.ranks) bytes = std::max(bytes, most_activation_bytes(rank));
    return static_cast<double>(bytes.value);
  };

  const double ratio = most({.kind = ScheduleKind::slimpipe, .slices = 16}) / most({.kind = ScheduleKind::one_f_one_b});

  RecordProperty("slimpipe_to_1f1b", std::to_string(ratio));
  EXPECT_LE(ratio, 0.42);
  EXPECT_GT(ratio, 22.0 / 64);  // the slices alone
}

TEST(ARunPlan, RefusesAModelThatBreaksARule) {
  auto shape = tiny_run(llama(), 1);
  shape.model.kv_heads = 3;

  error_of(ExitCode::bad_input, shape);
}

// --- schedule files
// -----------------------------------------------------------------------------------------------------

RunShape run_of_file(const Schedule& schedule, std::int32_t pipeline) {
  auto shape = tiny_run(llama(), pipeline);
  shape.schedule.file = "mine.csv";
  shape.schedule_csv = write_schedule_csv(schedule);
  return shape;
}

TEST(ARunPlan, OfAFileIsThatOfTheGeneratorWhichWroteIt) {
  const auto shape = run_of_file(one_f_one_b({2, 1, 4}), 2);

  const auto plan = plan_of(shape);

  const auto generated = plan_of(tiny_run(llama(), 2));
  EXPECT_EQ(plan.training.schedule.actions, generated.training.schedule.actions);
  for (const Rank rank : all<Rank>(2)) EXPECT_EQ(plan.training.ranks[rank].peak, generated.training.ranks[rank].peak);
}

TEST(ARunPlan, RefusesAFileForOtherRanksOrMicroBatchesWithTheNumbers) {
  EXPECT_THAT(error_of(ExitCode::bad_input, run_of_file(one_f_one_b({2, 1, 5}), 2)),
              AllOf(HasSubstr("mine.csv is for 2 ranks and 5 micro-batches"), HasSubstr("parallel.pipeline 2"),
                    HasSubstr("global_batch 8 / (micro_batch 2 x data 1) = 4 micro-batches")));
  EXPECT_THAT(error_of(ExitCode::bad_input, run_of_file(one_f_one_b({2, 1, 4}), 3)),
              AllOf(HasSubstr("is for 2 ranks"), HasSubstr("parallel.pipeline 3")));
}

TEST(ARunPlan, RefusesAFileThatCannotRun) {
  auto shape = tiny_run(llama(), 2);
  shape.schedule.file = "mine.csv";

  shape.schedule_csv = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2\n";
  EXPECT_THAT(error_of(ExitCode::damaged_input, shape), HasSubstr("1B3"));
  shape.schedule_csv = "0F0,what\n";
  EXPECT_THAT(error_of(ExitCode::damaged_input, shape), AllOf(HasSubstr("mine.csv"), HasSubstr("what")));
}

}  // namespace
}  // namespace penstock
