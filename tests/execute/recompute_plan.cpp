// SPDX-License-Identifier: Apache-2.0
//
// What a run plans by what its forwards keep.
#include <algorithm>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/run_plan.hpp"
#include "execute/tiny_run.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

using test::plan_of;
using test::Tied;
using test::tiny_model;
using test::tiny_run;

/// Of a model whose layers are wide beside their statistics, so that what is kept decides.
RunShape wide_run(std::int32_t pipeline, const ScheduleOptions& schedule, Recompute recompute) {
  ModelSpec model = tiny_model(Family::llama, Tied::no);
  model.hidden = 256;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_size = 32;
  model.ffn = 704;
  auto shape = tiny_run(model, pipeline);
  shape.sequence = 512;
  shape.schedule = schedule;
  shape.recompute = recompute;
  return shape;
}

/// Of the first of eight ranks, a layer each.
std::vector<Bytes> peaks_of(const ScheduleOptions& schedule, const std::vector<Recompute>& modes) {
  std::vector<Bytes> peaks;
  peaks.reserve(modes.size());
  for (const Recompute mode : modes) {
    peaks.push_back(plan_of(wide_run(8, schedule, mode)).training.ranks[Rank{0}].peak);
  }
  return peaks;
}

void expect_to_fall(const std::vector<Bytes>& peaks) {
  EXPECT_EQ(std::adjacent_find(peaks.begin(), peaks.end(), std::less_equal<>{}), peaks.end());
}

TEST(ARunPlan, NeedsLessTheMoreIsFormedAgain) {
  const std::vector modes{Recompute::none, Recompute::attention, Recompute::selective, Recompute::layers,
                          Recompute::full};

  expect_to_fall(peaks_of({.kind = ScheduleKind::gpipe}, modes));
}

// R fills the activations of all slices of a micro-batch, of which `layers` forms those of one.
TEST(ARunPlan, OfSlicesNeedsLeastWhereLayersAreFormedAgain) {
  const std::vector modes{Recompute::none, Recompute::attention, Recompute::selective, Recompute::full,
                          Recompute::layers};

  expect_to_fall(peaks_of({.kind = ScheduleKind::terapipe, .slices = 4}, modes));
}

TEST(ARunPlan, RecomputesEachStageAsItIsListed) {
  auto shape = wide_run(2, {.kind = ScheduleKind::gpipe}, Recompute::none);
  const RunPlan none = plan_of(shape);
  shape.recompute = Recompute::full;
  const RunPlan full = plan_of(shape);

  shape.recompute_by_stage = {Recompute::none, Recompute::full};
  const RunPlan listed = plan_of(shape);

  EXPECT_EQ(listed.training.ranks[Rank{0}].peak, none.training.ranks[Rank{0}].peak);
  EXPECT_EQ(listed.training.ranks[Rank{1}].peak, full.training.ranks[Rank{1}].peak);
  EXPECT_EQ(listed.training.schedule.recompute, (PerStage<bool>{std::vector{false, true}}));
}

TEST(ARunPlan, RefusesAListOfModesThatIsNotOneForEachStage) {
  auto shape = tiny_run(tiny_model(Family::llama, Tied::no), 2);
  shape.recompute_by_stage = {Recompute::full};

  try {
    plan_of(shape);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(
        error.what(),
        HasSubstr("memory.recompute_by_stage has 1 entry, but the backward pass of schedule 1f1b has 2 stages"));
  }
}

}  // namespace
}  // namespace penstock
