// SPDX-License-Identifier: Apache-2.0
//
// The closed forms of the sliced schedules: bubble by makespan with F 1 and B 2, and units kept per rank.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/units.hpp"
#include "memory/plan.hpp"
#include "schedule/passes.hpp"
#include "schedule/sliced_generators.hpp"
#include "simulate/helpers.hpp"
#include "simulate/simulate.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

/// The sizes of one schedule and what follows from them.
struct Sizes {
  std::int32_t p, v, n, m;

  GeneratorOptions options() const { return {.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n}; }
  std::int32_t all_units() const { return v * n * m; }
  std::int32_t group() const { return static_cast<std::int32_t>(round_up(p, n)); }
  bool fills_groups() const { return m * n % group() == 0; }
  double bubble() const { return (p - 1.0) / (all_units() + p - 1.0); }
  std::string text() const { return fmt::format("p={} v={} n={} m={}", p, v, n, m); }
};

template <class Visit>
void for_each_sliced_size(const Visit& visit) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int v : {1, 2, 3}) {
      for (const int n : {1, 2, 3, 4, 8, 16}) {
        for (const int m : {1, 2, 3, 4, 8}) visit(Sizes{p, v, n, m});
      }
    }
  }
}

std::int32_t units_kept(const Schedule& compute, std::int32_t rank) {
  return most_live(complete(compute, {}), Rank{rank}, BufferKind::activations);
}

/// A bubble in per cent as it is printed with two digits.
std::string percent(double fraction) {
  return fmt::format("{:.2f}", 100 * fraction);
}

TEST(SlicedSchedules, HaveTheFiguresThatAreKnown) {
  const Sizes four{8, 1, 8, 4};
  const Sizes eight{8, 2, 8, 8};

  EXPECT_EQ(percent(bubble(slimpipe(four.options()))), "17.95");
  EXPECT_EQ(percent(bubble(svpp(four.options()))), "17.95");
  EXPECT_EQ(percent(bubble(seq1f1b(four.options()))), "17.95");
  EXPECT_EQ(units_kept(slimpipe(four.options()), 0), 22);
  EXPECT_EQ(units_kept(svpp(four.options()), 0), 15);
  EXPECT_EQ(units_kept(seq1f1b(four.options()), 0), 15);
  EXPECT_EQ(percent(bubble(slimpipe(eight.options()))), "5.19");
  EXPECT_EQ(percent(bubble(svpp(eight.options()))), "5.19");
  EXPECT_EQ(units_kept(slimpipe(eight.options()), 0), 30);
  EXPECT_EQ(units_kept(svpp(eight.options()), 0), 23);
}

TEST(Terapipe, HasTheBubbleOfAllItsUnitsAndKeepsThemAll) {
  for_each_sliced_size([](const Sizes& sizes) {
    const Schedule schedule = terapipe(sizes.options());

    EXPECT_EQ(units_kept(schedule, 0), sizes.all_units());
    // With fewer units than ranks, the first rank waits for the last one between its stages.
    if (sizes.v > 1 && sizes.m * sizes.n < sizes.p) {
      EXPECT_GT(bubble(schedule), sizes.bubble() + bubble_rounding) << sizes.text();
    } else {
      EXPECT_NEAR(bubble(schedule), sizes.bubble(), bubble_rounding) << sizes.text();
    }
  });
}

TEST(Seq1F1B, HasTheBubbleOfAllItsUnitsAndKeepsThoseOfTheRanksBehind) {
  for_each_sliced_size([](const Sizes& sizes) {
    if (sizes.v > 1) return;
    const Schedule schedule = seq1f1b(sizes.options());

    EXPECT_NEAR(bubble(schedule), sizes.bubble(), bubble_rounding) << sizes.text();
    for (std::int32_t r = 0; r < sizes.p; ++r) {
      EXPECT_EQ(units_kept(schedule, r), std::min(sizes.all_units(), sizes.p - 1 - r + sizes.n)) << sizes.text();
    }
  });
}

TEST(Seq1F1BInterleaved, HasItsBubbleAndKeepsItsWarmUpAndOneMoreWhereItsGroupsAreFull) {
  for_each_sliced_size([](const Sizes& sizes) {
    const Schedule schedule = seq1f1b_interleaved(sizes.options());

    if (sizes.v == 1 || sizes.fills_groups()) {
      EXPECT_NEAR(bubble(schedule), sizes.bubble(), bubble_rounding) << sizes.text();
    }
    for (std::int32_t r = 0; r < sizes.p; ++r) {
      const int first = (sizes.v - 1) * sizes.group() + 2 * (sizes.p - 1 - r) + sizes.n;
      const int kept = units_kept(schedule, r);

      EXPECT_LE(kept, std::min(sizes.all_units(), first)) << sizes.text() << " r=" << r;
      if (sizes.fills_groups()) {
        EXPECT_EQ(kept, std::min(sizes.all_units(), first)) << sizes.text() << " r=" << r;
      }
    }
  });
}

TEST(Seq1F1BInterleaved, KeepsWhatItsAuthorsCodeKeepsWhereTheSlicesDivideTheRanks) {
  for_each_sliced_size([](const Sizes& sizes) {
    if (sizes.p % sizes.n != 0 || !sizes.fills_groups()) return;
    const auto& [p, v, n, m] = sizes;

    EXPECT_EQ(units_kept(seq1f1b_interleaved(sizes.options()), 0), std::min(sizes.all_units(), v * p + p + n - 2))
        << sizes.text();
  });
}

TEST(Svpp, HasTheBubbleOfAllItsUnitsWhereItsGroupsAreFull) {
  for_each_sliced_size([](const Sizes& sizes) {
    if (sizes.v > 1 && !sizes.fills_groups()) return;

    EXPECT_NEAR(bubble(svpp(sizes.options())), sizes.bubble(), bubble_rounding) << sizes.text();
  });
}

TEST(Svpp, LosesNoTimeToAShortLastGroup) {
  for_each_sliced_size([](const Sizes& sizes) {
    Sizes whole = sizes;
    while (!whole.fills_groups()) ++whole.m;
    const auto step = [](const Sizes& each) {
      return summarize(simulate(complete(svpp(each.options()), {}), unit_prices())).step_time;
    };

    EXPECT_LE(step(sizes), step(whole)) << sizes.text();
  });
}

TEST(Svpp, KeepsTheUnitsOfAGroupInEachStageButTheLast) {
  for_each_sliced_size([](const Sizes& sizes) {
    const Schedule schedule = svpp(sizes.options());

    for (std::int32_t r = 0; r < sizes.p; ++r) {
      const int first = (sizes.v - 1) * sizes.group() + sizes.n + sizes.p - 1 - r;
      const int kept = units_kept(schedule, r);

      EXPECT_LE(kept, std::min(sizes.all_units(), first)) << sizes.text() << " r=" << r;
      if (sizes.v == 1 || sizes.fills_groups()) {
        EXPECT_EQ(kept, std::min(sizes.all_units(), first)) << sizes.text() << " r=" << r;
      }
    }
  });
}

TEST(Svpp, KeepsAsManyUnitsAsThePaperSaysWhereAGroupCanBeThatSmall) {
  for_each_sliced_size([](const Sizes& sizes) {
    const auto& [p, v, n, m] = sizes;
    const int paper = std::min(sizes.all_units(), v * std::max(p, n) + std::min(p, n) - 1);
    const int kept = units_kept(svpp(sizes.options()), 0);

    if (!sizes.fills_groups() && v > 1) return;
    if (v == 1 || n >= p || p % n == 0) {
      EXPECT_EQ(kept, paper) << sizes.text();
    } else {
      EXPECT_LE(kept, paper + (v - 1) * (n - 1)) << sizes.text();
    }
  });
}

TEST(Svpp, TradesTimeForMemoryWithFewerForwardsFirst) {
  for (const Sizes& sizes :
       {Sizes{8, 2, 8, 3}, Sizes{8, 2, 4, 4}, Sizes{8, 3, 2, 4}, Sizes{4, 2, 6, 3}, Sizes{8, 3, 3, 3}}) {
    const int most = (sizes.v - 1) * sizes.group() + sizes.n + sizes.p - 1;
    double longer = 1;
    for (int first = sizes.v * sizes.n; first <= most; ++first) {
      GeneratorOptions options = sizes.options();
      options.forwards_first = first;
      const Schedule schedule = svpp(options);

      const double idle = bubble(schedule);

      for (std::int32_t r = 0; r < sizes.p; ++r) EXPECT_LE(units_kept(schedule, r), first) << sizes.text();
      EXPECT_LE(idle, longer + bubble_rounding) << sizes.text() << " f=" << first;
      longer = idle;
    }
    EXPECT_NEAR(longer, bubble(svpp(sizes.options())), bubble_rounding) << sizes.text();
  }
}

TEST(Slimpipe, HasTheBubbleOfAllItsUnitsAndKeepsTwoMoreForEachRankBehind) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int v : {1, 2, 3}) {
      for (const int rounds : {1, 2, 4}) {
        for (const int m : {1, 2, 3, 4}) {
          const Sizes sizes{p, v, rounds * p, m};
          const Schedule schedule = slimpipe(sizes.options());

          EXPECT_NEAR(bubble(schedule), sizes.bubble(), bubble_rounding) << sizes.text();
          for (std::int32_t r = 0; r < p; ++r) {
            EXPECT_EQ(units_kept(schedule, r), std::min(sizes.all_units(), sizes.n * v + 2 * (p - 1 - r)))
                << sizes.text();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
