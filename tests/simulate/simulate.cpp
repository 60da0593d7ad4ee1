// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulate.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"
#include "simulate/helpers.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

Schedule completed(const Schedule& compute) {
  return complete(compute, {});
}

const Span& span_of(const Timeline& timeline, const std::string& text) {
  const auto found = std::find_if(timeline.spans.begin(), timeline.spans.end(),
                                  [&](const Span& span) { return to_text(span.action) == text; });
  EXPECT_NE(found, timeline.spans.end()) << text;
  return *found;
}

TEST(Simulate, GivesGpipeAndOneFOneBTheirBubble) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const double expected = (p - 1.0) / (m + p - 1.0);

      EXPECT_NEAR(bubble(gpipe({p, 1, m})), expected, bubble_rounding) << p << " " << m;
      EXPECT_NEAR(bubble(one_f_one_b({p, 1, m})), expected, bubble_rounding) << p << " " << m;
    }
  }
}

TEST(Simulate, GivesInterleavedItsBubbleWhereTheRanksDivideTheMicroBatches) {
  for (int p = 1; p <= 8; ++p) {
    for (int groups = 1; groups <= 4; ++groups) {
      for (int v = 1; v <= 4; ++v) {
        const int m = groups * p;

        EXPECT_NEAR(bubble(interleaved({p, v, m})), (p - 1.0) / (v * m + p - 1.0), bubble_rounding)
            << p << " " << v << " " << m;
      }
    }
  }
}

TEST(Simulate, GivesBreadthFirstGpipeTheBubbleOfItsVirtualStages) {
  for (int p = 1; p <= 4; ++p) {
    for (int v = 1; v <= 3; ++v) {
      EXPECT_NEAR(bubble(gpipe({p, v, 2 * p})), (p - 1.0) / (v * 2.0 * p + p - 1.0), bubble_rounding);
    }
  }
}

TEST(Simulate, FillsThePipelineWithForwardsAlone) {
  for (int p = 1; p <= 4; ++p) {
    for (int v = 1; v <= 3; ++v) {
      PerStage<Rank> rank_of;
      for (int stage = 0; stage < p * v; ++stage) rank_of.push_back(Rank{stage % p});

      EXPECT_NEAR(bubble(forward_only(rank_of, 3 * p)), (p - 1.0) / (v * 3.0 * p + p - 1.0), bubble_rounding);
      EXPECT_NEAR(bubble(forward_only(rank_of, 3, 2 * p)), (p - 1.0) / (v * 6.0 * p + p - 1.0), bubble_rounding);
    }
  }
}

TEST(Simulate, LosesNothingToAShortLastGroup) {
  // An interleaved step is at most as long as that of the next multiple of the ranks.
  for (int p = 2; p <= 6; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const int whole = (m + p - 1) / p * p;

      EXPECT_LE(summarize(simulate(completed(interleaved({p, 2, m})), unit_prices())).step_time,
                summarize(simulate(completed(interleaved({p, 2, whole})), unit_prices())).step_time);
    }
  }
}

TEST(Simulate, RunsEveryActionOnceAndNeverTwoOnALane) {
  const Schedule schedule = completed(interleaved({3, 2, 5}));

  const Timeline timeline = simulate(schedule, unit_prices());

  std::map<std::pair<std::int32_t, Lane>, Seconds> lane_end;
  std::size_t actions = 0;
  for (const auto& list : schedule.actions) actions += list.size();
  EXPECT_EQ(timeline.spans.size(), actions);
  for (const Span& span : timeline.spans) {
    if (span.lane == Lane::send || span.lane == Lane::receive) continue;
    Seconds& end = lane_end[{span.rank, span.lane}];
    EXPECT_GE(span.start, end);
    end = span.end;
  }
}

TEST(Simulate, OccupiesBothEndsOfAMessage) {
  const Schedule schedule = completed(gpipe({2, 1, 2}));
  const auto prices = [](const ActionOnRank& node) {
    return lane_of(node.action.op) == Lane::send ? Seconds{3} : unit_duration(node.action.op);
  };

  const Timeline timeline = simulate(schedule, prices);

  // 0F0 ends at 1, 0F1 at 2; the channel is taken by the first message until 4, so the second lasts from 4 to 7.
  EXPECT_EQ(span_of(timeline, "0SEND_F0").start, Seconds{1});
  EXPECT_EQ(span_of(timeline, "1RECV_F1").start, Seconds{4});
  EXPECT_EQ(span_of(timeline, "1RECV_F1").end, Seconds{7});
  EXPECT_EQ(span_of(timeline, "0SEND_F1").end, Seconds{7});
  EXPECT_EQ(span_of(timeline, "1F1").start, Seconds{7});
  EXPECT_EQ(span_of(timeline, "1RECV_F1").peer, 0);
  EXPECT_EQ(span_of(timeline, "1F1").peer, -1);
}

TEST(Simulate, RunsHostActionsBesideTheBackwardsOfOtherStages) {
  const Schedule schedule = complete(gpipe({1, 2, 1}), {.steps_wait = StepsWait::for_reduction});
  const auto prices = [](const ActionOnRank& node) {
    return node.action.op == Op::step ? Seconds{1} : unit_duration(node.action.op);
  };

  const Timeline timeline = simulate(schedule, prices);

  EXPECT_EQ(span_of(timeline, "1STEP").start, span_of(timeline, "1B0").end);
  EXPECT_LT(span_of(timeline, "1STEP").start, span_of(timeline, "0B0").end);
}

std::vector<RankPlan> plan_all(const Schedule& schedule, std::int64_t each) {
  StageBytes bytes;
  bytes.fill(Bytes{each});
  const PerStage<StageBytes> stage_bytes(schedule.shape.stages, bytes);
  std::vector<RankPlan> plans;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    plans.push_back(plan_rank(schedule, rank, stage_bytes, lay_out_persistent({&schedule}, rank, {stage_bytes})));
  }
  return plans;
}

TEST(Simulate, RecordsTheMemoryOfThePlan) {
  for (const Schedule& schedule :
       {completed(one_f_one_b({4, 1, 6})), completed(interleaved({2, 2, 4})), completed(gpipe({3, 1, 4}))}) {
    const auto plans = plan_all(schedule, 1024);

    const Timeline timeline = simulate(schedule, unit_prices(), plans);

    std::map<std::int32_t, Bytes> most;
    std::map<std::int32_t, Bytes> last;
    std::map<std::int32_t, Seconds> time;
    for (const MemorySample& sample : timeline.memory) {
      EXPECT_GE(sample.time, time[sample.rank]);
      time[sample.rank] = sample.time;
      most[sample.rank] = std::max(most[sample.rank], sample.in_use);
      last[sample.rank] = sample.in_use;
    }
    for (const RankPlan& plan : plans) {
      EXPECT_LE(most[plan.rank.value()], plan.peak) << schedule.name;
      EXPECT_GT(most[plan.rank.value()], plan.persistent_bytes) << schedule.name;
      EXPECT_EQ(last[plan.rank.value()], plan.persistent_bytes) << schedule.name;
    }
  }
}

TEST(Simulate, LosesNoTimeToTheMemoryOfThePlan) {
  for (int p = 2; p <= 4; ++p) {
    for (int m = 1; m <= 8; ++m) {
      const Schedule schedule = completed(one_f_one_b({p, 1, m}));

      const auto with_plan = summarize(simulate(schedule, unit_prices(), plan_all(schedule, 1024)));

      EXPECT_NEAR(with_plan.bubble_makespan, (p - 1.0) / (m + p - 1.0), bubble_rounding);
    }
  }
}

TEST(Simulate, GivesMessagesTheirBytes) {
  const Schedule schedule = completed(gpipe({2, 1, 1}));

  const Timeline timeline = simulate(schedule, unit_prices(), plan_all(schedule, 1024));

  EXPECT_EQ(span_of(timeline, "0SEND_F0").bytes, Bytes{1024});
  EXPECT_EQ(span_of(timeline, "1RECV_F0").bytes, Bytes{1024});
  EXPECT_EQ(span_of(timeline, "1F0").bytes, Bytes{0});
}

TEST(Simulate, WaitsForMemory) {
  const Schedule schedule = completed(gpipe({2, 1, 2}));
  auto plans = plan_all(schedule, 1024);
  // Rank 1 is made to receive micro-batch 1 only when the forward of 0 is complete, as if it had no memory before.
  const auto position = [&](const std::string& text) {
    const auto& list = schedule.actions[Rank{1}];
    return std::find_if(list.begin(), list.end(), [&](const Action& action) { return to_text(action) == text; }) -
           list.begin();
  };
  plans[1].actions[static_cast<std::size_t>(position("1RECV_F1"))].waits_for = {
      static_cast<std::int32_t>(position("1F0"))};
  const auto prices = [](const ActionOnRank& node) {
    return node.rank == Rank{1} ? Seconds{5} : unit_duration(node.action.op);
  };

  EXPECT_EQ(span_of(simulate(schedule, prices), "1RECV_F1").start, Seconds{2});
  EXPECT_EQ(span_of(simulate(schedule, prices, plans), "1RECV_F1").start,
            span_of(simulate(schedule, prices), "1F0").end);
}

TEST(Simulate, RefusesAScheduleThatCannotRun) {
  const Schedule schedule = complete(read_schedule_csv("0B0,0F0", "backwards"), {});

  try {
    simulate(schedule, unit_prices());
    FAIL() << "simulated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    EXPECT_THAT(error.what(), testing::HasSubstr("'backwards' cannot be simulated"));
  }
}

TEST(Simulate, LetsAReceiveWithoutItsSendStandAlone) {
  const Schedule schedule = read_schedule_csv("0F0\n1RECV_F0,1F0", "half");

  EXPECT_EQ(span_of(simulate(schedule, unit_prices()), "1RECV_F0").end, Seconds{0});
}

TEST(Simulate, RefusesPlansOfAnotherSchedule) {
  const Schedule schedule = completed(gpipe({2, 1, 2}));

  EXPECT_THROW(simulate(schedule, unit_prices(), plan_all(completed(gpipe({2, 1, 3})), 1024)), Error);
  EXPECT_THROW(simulate(schedule, unit_prices(), plan_all(completed(gpipe({1, 1, 2})), 1024)), Error);
}

}  // namespace
}  // namespace penstock
