// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/helpers.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

/// Every pair of neighbours in every list: the strongest edges that any layout of memory can add.
std::vector<MemoryEdge> all_list_edges(const Schedule& schedule) {
  std::vector<MemoryEdge> edges;
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    for (std::size_t position = 1; position < schedule.actions[rank].size(); ++position) {
      const auto after = static_cast<std::int32_t>(position);
      edges.push_back({rank, after - 1, after});
    }
  }
  return edges;
}

TEST(AddRecompute, PutsRDirectlyBeforeTheBackwardOfMarkedStages) {
  const Schedule schedule = add_recompute(gpipe({.pipeline = 2, .virtual_stages = 1, .micro_batches = 2}),
                                          PerStage<bool>{std::vector<bool>{true, false}});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0R0 0B0 0R1 0B1");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1F1 1B0 1B1");
  EXPECT_TRUE(schedule.recompute[Stage{0}]);
}

TEST(AddRecompute, RunsTheSlicesOfAMicroBatchForwardBeforeItsFirstBackward) {
  Schedule schedule = read_schedule_csv("0F0.0,0F0.1,0B0.1,0B0.0", "slices");

  schedule = add_recompute(schedule, PerStage<bool>(1, true));

  EXPECT_EQ(row(schedule, Rank{0}), "0F0.0 0F0.1 0R0.0 0R0.1 0B0.1 0B0.0");
}

TEST(AddRecompute, RefusesAListOfAnotherLength) {
  EXPECT_THROW(add_recompute(gpipe({.pipeline = 2}), PerStage<bool>(3, true)), Error);
}

TEST(SplitWeightGradients, ReplacesBByIAndW) {
  const Schedule schedule = split_weight_gradients(gpipe({.pipeline = 1, .virtual_stages = 1, .micro_batches = 2}));

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0I0 0W0 0I1 0W1");
}

TEST(AddCommunication, SendsAfterTheProducerAndPostsTheReceiveAtTheSameTime) {
  const Schedule schedule = add_communication(one_f_one_b({.pipeline = 2, .virtual_stages = 1, .micro_batches = 2}));

  // With F 1 and B 2 units: rank 0 runs 0F0 0-1, 0F1 1-2, 0B0 4-6; rank 1 runs 1F0 1-2, 1B0 2-4, 1F1 4-5, 1B1 5-7.
  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
  EXPECT_EQ(row(schedule, Rank{1}), "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1");
}

TEST(AddCommunication, SendsNothingBetweenStagesOfOneRank) {
  const Schedule schedule = add_communication(interleaved({.pipeline = 1, .virtual_stages = 3, .micro_batches = 2}));

  EXPECT_EQ(row(schedule, Rank{0}).find("SEND"), std::string::npos);
}

TEST(AddCommunication, ReceivesInTheOrderOfTheSendsWhereTheConsumersAreInAnother) {
  const Schedule compute = read_schedule_csv("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", "crossed");

  const Schedule schedule = add_communication(compute);

  EXPECT_LT(find(schedule, Rank{1}, "1RECV_F0"), find(schedule, Rank{1}, "1RECV_F1"));
  EXPECT_LT(find(schedule, Rank{1}, "1RECV_F1"), find(schedule, Rank{1}, "1F1"));
}

TEST(AddCommunication, LeavesTheCycleOfAScheduleThatCannotRunForTheValidator) {
  const Schedule compute = read_schedule_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", "stuck");

  const auto findings = validate(complete(compute, {}));

  ASSERT_EQ(findings.size(), 1U) << texts(findings);
  EXPECT_EQ(findings[0].rule, Rule::cycle);
}

TEST(AddHostStages, LetsEveryStepWaitForTheNorm) {
  const Schedule compute = interleaved({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1});

  const Schedule schedule = add_host_stages(compute, StepsWait::for_norm);

  EXPECT_EQ(row(schedule, Rank{0}),
            "0F0 1F0 1B0 1OFFLOAD_G 1REDUCE 0B0 0OFFLOAD_G 0REDUCE VALIDATE 0STEP 1STEP 0FETCH_F 1FETCH_F");
}

TEST(AddHostStages, StepsAStageAtOnceWithoutClipping) {
  const Schedule compute = interleaved({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1});

  const Schedule schedule = add_host_stages(compute, StepsWait::for_reduction);

  EXPECT_EQ(row(schedule, Rank{0}),
            "0F0 1F0 1B0 1OFFLOAD_G 1REDUCE 1STEP 1FETCH_F 0B0 0OFFLOAD_G 0REDUCE 0STEP 0FETCH_F VALIDATE");
}

TEST(AddHostStages, StepsATiedLastStageLast) {
  Schedule compute = interleaved({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1});
  compute.tied_embeddings = true;

  const Schedule schedule = add_host_stages(compute, StepsWait::for_reduction);

  EXPECT_EQ(row(schedule, Rank{0}),
            "0F0 1F0 1B0 1OFFLOAD_G 1REDUCE 0B0 0OFFLOAD_G 0REDUCE 0STEP 0FETCH_F 1STEP 1FETCH_F VALIDATE");
}

TEST(AddHostStages, UndoesBehindTheNormWhatWasSteppedBeforeIt) {
  Schedule compute = interleaved({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1});

  EXPECT_EQ(row(add_host_stages(compute, StepsWait::speculative), Rank{0}),
            "0F0 1F0 1B0 1OFFLOAD_G 1REDUCE 1STEP 0B0 0OFFLOAD_G 0REDUCE 0STEP VALIDATE 0UNDO 1UNDO 0FETCH_F 1FETCH_F");

  compute.tied_embeddings = true;
  EXPECT_EQ(row(add_host_stages(compute, StepsWait::speculative), Rank{0}),
            "0F0 1F0 1B0 1OFFLOAD_G 1REDUCE 0B0 0OFFLOAD_G 0REDUCE 0STEP 1STEP VALIDATE 0UNDO 1UNDO 0FETCH_F 1FETCH_F");
}

TEST(AddHostStages, OffloadsAfterTheMessageOfTheLastBackward) {
  const Schedule compute = one_f_one_b({.pipeline = 2, .virtual_stages = 1, .micro_batches = 1});

  const Schedule schedule = add_host_stages(add_communication(compute), StepsWait::for_norm);

  EXPECT_EQ(row(schedule, Rank{1}), "1RECV_F0 1F0 1B0 1SEND_B0 1OFFLOAD_G 1REDUCE VALIDATE 1STEP 1FETCH_F");
}

TEST(Complete, KeepsWhatAHandWrittenScheduleSays) {
  const Schedule written = complete(one_f_one_b({.pipeline = 2, .virtual_stages = 1, .micro_batches = 2}),
                                    {.recompute = PerStage<bool>(2, true)});

  EXPECT_EQ(complete(written, {.recompute = PerStage<bool>(2, true)}), written);
}

TEST(Complete, AddsNoHostActionsToForwardOnly) {
  const Schedule schedule = complete(forward_only(dealt(2, 1), 1), {});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0SEND_F0");
  EXPECT_EQ(row(schedule, Rank{1}), "1RECV_F0 1F0");
}

class CompleteOverTheGrid : public testing::TestWithParam<std::tuple<bool, bool, bool, StepsWait>> {
 protected:
  static CompletionOptions options(const Schedule& schedule) {
    const auto [recompute, split, tied, wait] = GetParam();
    return {PerStage<bool>(schedule.shape.stages, recompute), split, tied, wait};
  }
};

TEST_P(CompleteOverTheGrid, LeavesTheValidatorNothingToFind) {
  for_each_generated([](const Schedule& compute) {
    const Schedule schedule = complete(compute, options(compute));

    const auto findings = validate(schedule);

    EXPECT_TRUE(findings.empty()) << describe(schedule) << "\n" << texts(findings);
  });
}

TEST_P(CompleteOverTheGrid, CannotBeStoppedByAnyLayoutOfMemory) {
  for_each_generated([](const Schedule& compute) {
    const Schedule schedule = complete(compute, options(compute));

    const auto findings = validate(schedule, all_list_edges(schedule));

    EXPECT_TRUE(findings.empty()) << describe(schedule) << "\n" << texts(findings);
  });
}

TEST_P(CompleteOverTheGrid, KeepsTheOrderOfTheComputeActions) {
  for_each_generated([](const Schedule& compute) {
    const auto [recompute, split, tied, wait] = GetParam();
    if (recompute || split) return;
    const Schedule schedule = complete(compute, options(compute));

    for (const Rank rank : all<Rank>(compute.shape.ranks)) {
      std::vector<Action> kept;
      for (const Action& action : schedule.actions[rank]) {
        if (lane_of(action.op) == Lane::compute) kept.push_back(action);
      }
      EXPECT_EQ(kept, compute.actions[rank]) << describe(schedule);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Options, CompleteOverTheGrid,
                         testing::Values(std::tuple{false, false, false, StepsWait::for_norm},
                                         std::tuple{false, false, true, StepsWait::for_reduction},
                                         std::tuple{true, false, true, StepsWait::for_norm},
                                         std::tuple{false, true, false, StepsWait::for_reduction},
                                         std::tuple{true, true, true, StepsWait::for_norm},
                                         std::tuple{false, false, false, StepsWait::speculative},
                                         std::tuple{true, true, true, StepsWait::speculative}));

TEST(AllListEdges, FindTheDeadlockOfReceivesThatTakeTheirBuffersLate) {
  // 1F1B with each receive directly before its consumer: rank 0 would give the memory of 0SEND_F1 to 0RECV_B0, rank 1
  // that of 1SEND_B0 to 1RECV_F1.
  const Schedule schedule = complete(read_schedule_csv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                                                       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
                                                       "late"),
                                     {});

  EXPECT_TRUE(validate(schedule).empty());
  const auto findings = validate(schedule, all_list_edges(schedule));
  ASSERT_EQ(findings.size(), 1U) << texts(findings);
  EXPECT_EQ(findings[0].rule, Rule::cycle);
}

}  // namespace
}  // namespace penstock
