// SPDX-License-Identifier: Apache-2.0
#include "schedule/graph.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/helpers.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

Schedule two_ranks() {
  return add_communication(gpipe({.pipeline = 2, .virtual_stages = 1, .micro_batches = 1}));
}

TEST(DependenceGraph, MergesASendWithItsReceive) {
  const Schedule schedule = two_ranks();  // 0F0 0SEND_F0 0RECV_B0 0B0 | 1RECV_F0 1F0 1B0 1SEND_B0
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};

  EXPECT_EQ(graph.size(), 8);
  EXPECT_TRUE(graph.is_node(graph.node_of(Rank{0}, 1)));
  EXPECT_FALSE(graph.is_node(graph.node_of(Rank{1}, 0)));
  EXPECT_FALSE(graph.is_node(graph.node_of(Rank{0}, 2)));
}

TEST(DependenceGraph, NamesTheActionOfEachNode) {
  const Schedule schedule = two_ranks();
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};

  for (const Rank rank : all<Rank>(2)) {
    for (std::int32_t position = 0; position < 4; ++position) {
      const std::int32_t node = graph.node_of(rank, position);
      EXPECT_EQ(graph.action_of(node).rank, rank);
      EXPECT_EQ(graph.action_of(node).action, schedule.actions[rank][static_cast<std::size_t>(position)]);
      EXPECT_EQ(graph.position_of(node), position);
    }
  }
}

TEST(DependenceGraph, LeadsFromAProducerThroughTheMessageToItsConsumer) {
  const Schedule schedule = two_ranks();
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};
  const std::int32_t send = graph.node_of(Rank{0}, 1);

  std::set<std::int32_t> after_forward;
  for (const Successor& successor : graph.successors(graph.node_of(Rank{0}, 0))) after_forward.insert(successor.node);

  EXPECT_TRUE(after_forward.count(send) > 0);
  ASSERT_EQ(graph.successors(send).size(), 1U);
  EXPECT_EQ(graph.successors(send)[0].node, graph.node_of(Rank{1}, 1));
  EXPECT_EQ(graph.successors(send)[0].kind, EdgeKind::need);
}

TEST(DependenceGraph, AddsTheEdgesOfMemoryPlans) {
  const Schedule schedule = two_ranks();
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index, {{Rank{0}, 1, 2}}};  // the receive of B takes what the send frees

  const auto successors = graph.successors(graph.node_of(Rank{0}, 1));

  ASSERT_EQ(successors.size(), 2U);
  EXPECT_EQ(successors[1].kind, EdgeKind::memory);
  EXPECT_EQ(successors[1].node, graph.node_of(Rank{1}, 3));  // 1SEND_B0, which the receive is merged into
}

TEST(EarliestStarts, CountsUnitsAlongTheLongestPath) {
  const Schedule schedule = two_ranks();
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};

  const auto starts =
      earliest_starts(graph, [&](std::int32_t node) { return unit_duration(graph.action_of(node).action.op); });

  ASSERT_TRUE(starts);
  EXPECT_EQ((*starts)[static_cast<std::size_t>(graph.node_of(Rank{1}, 2))], Seconds{2});  // 1B0 after 0F0 and 1F0
  EXPECT_EQ((*starts)[static_cast<std::size_t>(graph.node_of(Rank{0}, 3))], Seconds{4});  // 0B0 after 1B0
}

TEST(EarliestStarts, IsEmptyForACycle) {
  const Schedule schedule = read_schedule_csv("0B0,0F0", "backwards");
  const ScheduleIndex index{schedule};

  EXPECT_FALSE(earliest_starts(DependenceGraph{index}, [](std::int32_t) { return Seconds{1}; }));
}

TEST(ScheduleIndex, FindsActionsOnTheirRankOnly) {
  const Schedule schedule = two_ranks();
  const ScheduleIndex index{schedule};
  const Action forward{Op::forward, Stage{1}, MicroBatch{0}, Slice{0}};

  EXPECT_EQ(index.position_of({Rank{1}, forward}), 1);
  EXPECT_EQ(index.position_of({Rank{0}, forward}), std::nullopt);
  EXPECT_TRUE(index.contains(forward));
  EXPECT_FALSE(index.contains({Op::step, Stage{1}, MicroBatch{0}, Slice{0}}));
}

TEST(ScheduleIndex, DoesNotFindIdsBeyondTheShape) {
  const Schedule schedule = two_ranks();
  const ScheduleIndex index{schedule};

  for (const Action& action :
       {Action{Op::forward, Stage{2}, MicroBatch{0}, Slice{0}}, Action{Op::forward, Stage{-1}, MicroBatch{0}, Slice{0}},
        Action{Op::forward, Stage{0}, MicroBatch{1}, Slice{0}}, Action{Op::forward, Stage{0}, MicroBatch{0}, Slice{1}},
        Action{Op::step, Stage{0}, MicroBatch{1}, Slice{0}}, Action{Op::validate, Stage{1}, MicroBatch{0}, Slice{0}}}) {
    EXPECT_FALSE(is_within(schedule, action));
    EXPECT_FALSE(index.contains(action));
    EXPECT_EQ(index.position_of({Rank{7}, action}), std::nullopt);
  }
}

}  // namespace
}  // namespace penstock
