// SPDX-License-Identifier: Apache-2.0
//
// The closed forms of the schedules with one slice, at F = I = W = 1 and B = 2 units: what a step lasts, and how many
// stages' activations a rank keeps (schedule/generators.hpp).
#include <algorithm>
#include <cstdint>
#include <set>

#include <gtest/gtest.h>

#include "memory/plan.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "simulate/simulate.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

/// Units that a rank waits in a step: over the whole makespan, and between its own first and last action on the rank
/// where that is longest.
struct Idle {
  double makespan = 0;
  double span = 0;
};

// Times are whole numbers; the bubble that they are taken from is rounded twice.
constexpr double idle_rounding = 1e-9;

Idle idle_of(const Schedule& compute) {
  const Timeline timeline = simulate(complete(compute, {}), unit_prices());
  const TimelineSummary summary = summarize(timeline);
  const double work = summary.ranks.at(0).busy_of(Lane::compute).value;
  return {work / (1 - summary.bubble_makespan) - work, work / (1 - summary.bubble_span) - work};
}

/// The most activations of a (stage, micro-batch) that any rank keeps.
std::int32_t kept(const Schedule& compute) {
  const Schedule schedule = complete(compute, {});
  std::int32_t most = 0;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    most = std::max(most, most_live(schedule, rank, BufferKind::activations));
  }
  return most;
}

/// Calls visit(p, m) over few and many ranks, and micro-batches below, at and above their number.
template <class Visit>
void for_each_ranks_and_micro_batches(const Visit& visit) {
  for (const int p : {1, 2, 3, 4, 8, 16}) {
    for (const int m : std::set<int>{1, 2, 3, p - 1, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 1, 4 * p}) {
      if (m > 0) visit(p, m);
    }
  }
}

TEST(ZbH1, IdlesAThirdOfOneFOneBInItsMemory) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    const Schedule schedule = zb_h1({p, 1, m});

    EXPECT_NEAR(idle_of(schedule).makespan, 2 * p - 1 - std::min(m, p), idle_rounding) << p << " " << m;
    EXPECT_EQ(kept(schedule), kept(one_f_one_b({p, 1, m}))) << p << " " << m;
    if (m < p) return;
    EXPECT_NEAR(summarize(simulate(complete(schedule, {}), unit_prices())).bubble_makespan,
                (p - 1.0) / (3.0 * m + p - 1.0), idle_rounding);
    EXPECT_NEAR(3 * idle_of(schedule).makespan, idle_of(one_f_one_b({p, 1, m})).makespan, idle_rounding);
  });
}

TEST(ZbH2, HasNoBubbleBySpanInTwiceTheMemory) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    const Schedule schedule = zb_h2({p, 1, m});

    EXPECT_NEAR(idle_of(schedule).makespan, idle_of(zb_h1({p, 1, m})).makespan, idle_rounding) << p << " " << m;
    EXPECT_NEAR(idle_of(schedule).span, 2 * p - 1 - std::min(m, 2 * p - 1), idle_rounding) << p << " " << m;
    EXPECT_EQ(kept(schedule), std::min(m, 2 * p - 1)) << p << " " << m;
  });
}

TEST(ZbV, HasNoBubbleBySpanInTheMemoryOfOneFOneB) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    const Schedule schedule = zb_v({p, 2, m});
    const Idle idle = idle_of(schedule);

    EXPECT_LE(kept(schedule), 2 * std::min(p, m)) << p << " " << m;
    if (m >= p) {
      EXPECT_NEAR(idle.makespan, p - 1, idle_rounding) << p << " " << m;
    } else {
      EXPECT_LE(idle.makespan, 4 * p - 5 + idle_rounding) << p << " " << m;
    }
    if (m < 2 * p - 1) return;
    EXPECT_NEAR(idle.span, 0, idle_rounding) << p << " " << m;
    EXPECT_EQ(kept(schedule), std::min(2 * p, 2 * m)) << p << " " << m;
  });
}

/// V-Half and V-Min are one order on one and two ranks, where the formulas do not hold yet.
double idle_of_v_on_few_ranks(int p, int m) {
  if (p == 1) return 0;
  return m == 1 ? 3 : 2;
}

TEST(VHalf, IdlesHalfOfOneFOneBInHalfItsMemory) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    const Schedule schedule = v_half({p, 2, m});
    const double idle = idle_of(schedule).makespan;

    EXPECT_LE(kept(schedule), 2 * ((p + 2) / 2)) << p << " " << m;
    if (p < 3) {
      EXPECT_NEAR(idle, idle_of_v_on_few_ranks(p, m), idle_rounding) << p << " " << m;
      return;
    }
    EXPECT_NEAR(idle, std::max(4 * p - 3 - 2 * m, 3 * p - 5 + p % 2), idle_rounding) << p << " " << m;
    if (m < p) return;
    EXPECT_EQ(kept(schedule), 2 * ((p + 2) / 2)) << p << " " << m;
    EXPECT_LT(idle, 6 * (p - 1) / 2.0) << "half of 1f1b's, whose stages last two of these units";
  });
}

TEST(VMin, IdlesTwoThirdsOfOneFOneBInAThirdOfItsMemory) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    const Schedule schedule = v_min({p, 2, m});
    const double idle = idle_of(schedule).makespan;

    EXPECT_LE(kept(schedule), 2 * ((p + 4) / 3)) << p << " " << m;
    if (p < 3) {
      EXPECT_NEAR(idle, idle_of_v_on_few_ranks(p, m), idle_rounding) << p << " " << m;
      return;
    }
    EXPECT_NEAR(idle, 4 * p - 5, idle_rounding) << p << " " << m;
    if (m < p) return;
    EXPECT_EQ(kept(schedule), 2 * ((p + 4) / 3)) << p << " " << m;
    EXPECT_LT(idle, 6 * (p - 1) * 2 / 3.0) << "two thirds of 1f1b's, whose stages last two of these units";
  });
}

TEST(DualpipeV, IdlesHalfOfWhatOverlappedPairsDo) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    const Schedule schedule = dualpipe_v({p, 2, m});

    EXPECT_LE(kept(schedule), std::min(2 * m, 2 * p + 1)) << p << " " << m;
    if (m < 2 * p) return;
    EXPECT_NEAR(idle_of(schedule).makespan, p - 1, idle_rounding) << p << " " << m;
    EXPECT_EQ(kept(schedule), 2 * p + 1) << p << " " << m;
  });
}

TEST(Hanayo, IdlesTheLeastThatTheMemoryOfOneFOneBAllows) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    for (const int v : {2, 4, 6}) {
      const Schedule schedule = hanayo({p, v, m});

      EXPECT_LE(kept(schedule), v * std::min(p, m)) << p << " " << v << " " << m;
      if (m % p != 0 && (v > 2 || m < p)) continue;
      EXPECT_NEAR(idle_of(schedule).makespan, 4 * (p - 1), idle_rounding) << p << " " << v << " " << m;
      EXPECT_EQ(kept(schedule), v * p) << p << " " << v << " " << m;
    }
  });
}

TEST(Hanayo, LosesNothingToAShortLastGroup) {
  const auto step_time = [](int p, int v, int m) {
    return summarize(simulate(complete(hanayo({p, v, m}), {}), unit_prices())).step_time;
  };
  for (int p = 2; p <= 6; ++p) {
    for (int m = 1; m <= 12; ++m) EXPECT_LE(step_time(p, 4, m), step_time(p, 4, (m + p - 1) / p * p)) << p << " " << m;
  }
}

TEST(BreadthFirst, HasTheBubbleOfItsVirtualStages) {
  for_each_ranks_and_micro_batches([](int p, int m) {
    for (int v = 1; v <= 3; ++v) {
      const Schedule schedule = breadth_first({p, v, m});

      EXPECT_EQ(kept(schedule), v * m) << p << " " << v << " " << m;
      if (m < p) continue;
      EXPECT_NEAR(idle_of(schedule).makespan, 3 * (p - 1), idle_rounding) << p << " " << v << " " << m;
    }
  });
}

}  // namespace
}  // namespace penstock
