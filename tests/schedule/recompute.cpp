// SPDX-License-Identifier: Apache-2.0
#include "schedule/recompute.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "schedule/streamed_generators.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Modes = std::vector<Recompute>;

Modes modes_of(const Schedule& schedule, Recompute of_all, const RecomputeList& by_stage = {}) {
  const auto modes = recompute_modes(schedule, of_all, by_stage);
  return {modes.begin(), modes.end()};
}

Schedule two_stages() {
  return gpipe({.pipeline = 2, .virtual_stages = 1, .micro_batches = 2});
}

std::string refusal_of(const Schedule& schedule, const Modes& by_stage) {
  try {
    recompute_modes(schedule, Recompute::none, by_stage);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return {};
}

TEST(RecomputeModes, AreThatOfAllUnlessTheyAreListed) {
  EXPECT_THAT(modes_of(two_stages(), Recompute::layers), ElementsAre(Recompute::layers, Recompute::layers));
  EXPECT_THAT(modes_of(two_stages(), Recompute::layers, Modes{Recompute::full, Recompute::none}),
              ElementsAre(Recompute::full, Recompute::none));
}

TEST(RecomputeModes, AreRefusedWithBothNumbersIfNotOneForEachStage) {
  EXPECT_EQ(refusal_of(two_stages(), {Recompute::none}),
            "memory.recompute_by_stage has 1 entry, but the backward pass of schedule gpipe has 2 stages");
  EXPECT_THAT(refusal_of(two_stages(), Modes(3, Recompute::none)), HasSubstr("has 3 entries"));
}

TEST(RecomputeModes, AreFullWhereTheScheduleHasAnROfTheStage) {
  const Schedule of_file = read_schedule_csv("0F0,0R0,0B0\n1F0,1B0,\n", "a.csv");

  EXPECT_THAT(modes_of(of_file, Recompute::attention), ElementsAre(Recompute::full, Recompute::attention));
}

TEST(RecomputeModes, OfDecoupledPassesAreFullForEachBackwardStage) {
  const Schedule decoupled = spipe({.pipeline = 2, .micro_batches = 4, .forward_virtual = 1, .backward_virtual = 2});

  EXPECT_EQ(modes_of(decoupled, Recompute::none), Modes(4, Recompute::full));
}

TEST(RecomputeModes, GiveAnRToStagesOfFullAlone) {
  const auto modes = recompute_modes(two_stages(), Recompute::none, Modes{Recompute::layers, Recompute::full});

  const Schedule schedule = complete(two_stages(), {.recompute = fully_recomputed(modes)});

  EXPECT_FALSE(schedule.recompute[Stage{0}]);
  EXPECT_TRUE(schedule.recompute[Stage{1}]);
}

}  // namespace
}  // namespace penstock
