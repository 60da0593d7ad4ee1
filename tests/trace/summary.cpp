// SPDX-License-Identifier: Apache-2.0
#include "trace/summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "trace/example.hpp"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using testing::gpipe_timeline;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double rounding = 1e-12;  // sums of a few dozen small whole numbers

TEST(Summary, GivesTheBubbleOfGPipe) {
  // (p-1)/(m+p-1) with p = 4, m = 8; every rank's own span is shorter than the makespan, so work / span differs.
  const auto summary = summarize(gpipe_timeline(4, 8));

  EXPECT_NEAR(summary.bubble_makespan, 3.0 / 11.0, rounding);
  EXPECT_NEAR(summary.bubble_span, 1.0 - 24.0 / 33.0, rounding);  // rank 0 lasts the whole makespan
  EXPECT_NEAR(summary.step_time.value, 33.0, rounding);
  EXPECT_EQ(summary.steps, 1);
}

TEST(Summary, BubbleBySpanIsZeroWhereEveryRankIsDense) {
  Timeline staggered{"wave", 2, {testing::span(0, Op::forward, 0, 0, 2), testing::span(1, Op::forward, 0, 1, 3)}, {}};

  const auto summary = summarize(staggered);

  EXPECT_NEAR(summary.bubble_span, 0.0, rounding);
  EXPECT_NEAR(summary.bubble_makespan, 1.0 / 3.0, rounding);
}

TEST(Summary, LeavesOutTheTimeBetweenSteps) {
  auto timeline = gpipe_timeline(2, 2);
  for (auto span : gpipe_timeline(2, 2).spans) {
    span.step = 1;
    span.start += Seconds{1000};
    span.end += Seconds{1000};
    timeline.spans.push_back(span);
  }

  const auto summary = summarize(timeline);

  EXPECT_EQ(summary.steps, 2);
  EXPECT_NEAR(summary.step_time.value, 9.0, 1e-9);  // times near 1000 have 1e-13 of rounding each
  EXPECT_NEAR(summary.bubble_makespan, 1.0 / 3.0, 1e-9);
}

TEST(Summary, CountsOverlappingMessagesOnceAsBusyAndFullyByOp) {
  auto timeline = gpipe_timeline(2, 1);
  timeline.spans.push_back(testing::message(0, Op::send_forward, 1, 0, 1.0, 3.0));
  timeline.spans.push_back(testing::message(0, Op::send_forward, 1, 1, 2.0, 4.0));

  const auto rank = summarize(timeline).ranks[0];

  EXPECT_NEAR(rank.busy_of(Lane::send).value, 3.0, rounding);
  EXPECT_NEAR(rank.lanes[1].by_op[static_cast<std::size_t>(Op::send_forward)].value, 4.0, rounding);
  EXPECT_NEAR(rank.busy_of(Lane::compute).value, 3.0, rounding);
  EXPECT_EQ(rank.busy_of(Lane::cpu).value, 0.0);
}

TEST(Summary, DoesNotCountAsBusyWhatActionsWaitedForOtherRanks) {
  auto timeline = gpipe_timeline(2, 2);  // 9 units, of which each rank works 6
  timeline.spans[0].waited = {0.25};     // F0 of rank 0
  timeline.spans[2].waited = {1.25};     // B0 of rank 0

  const auto summary = summarize(timeline);

  EXPECT_NEAR(summary.bubble_makespan, 1 - 10.5 / 18, rounding);
  EXPECT_NEAR(summary.bubble_span, 1 - 10.5 / 18, rounding);
  EXPECT_NEAR(summary.ranks[0].busy_of(Lane::compute).value, 4.5, rounding);
  EXPECT_NEAR(summary.ranks[0].waited().value, 1.5, rounding);
  EXPECT_NEAR(summary.ranks[0].lanes[0].by_op[static_cast<std::size_t>(Op::forward)].value, 1.75, rounding);
  EXPECT_NEAR(summary.ranks[1].busy_of(Lane::compute).value, 6, rounding);
  EXPECT_THAT(to_text(summary), HasSubstr("waited |"));
  EXPECT_THAT(to_text(summarize(gpipe_timeline(2, 2))), Not(HasSubstr("waited")));
}

TEST(Summary, OfNothingIsZero) {
  const auto summary = summarize({"none", 2, {}, {}});

  EXPECT_EQ(summary.steps, 0);
  EXPECT_EQ(summary.bubble_makespan, 0.0);
  EXPECT_EQ(summary.ranks.size(), 2U);
}

TEST(Summary, PrintsARowPerRank) {
  const std::string text = to_text(summarize(gpipe_timeline(2, 2)));

  EXPECT_THAT(text, HasSubstr("bubble 33.3 %"));
  EXPECT_THAT(text, HasSubstr("\n   1     6.0000 |    2.0000    4.0000"));
}

TEST(OnlyStep, TakesTheSpansAndSamplesOfOneStep) {
  auto timeline = gpipe_timeline(2, 2);
  timeline.spans[0].step = 4;
  timeline.memory[1].step = 4;

  EXPECT_THAT(steps_of(timeline), ElementsAre(0, 4));
  EXPECT_EQ(only_step(timeline, 4).spans.size(), 1U);
  EXPECT_EQ(only_step(timeline, 4).memory.size(), 1U);
}

TEST(Compare, FindsTheSameOrderAndTheRatios) {
  const auto comparison = compare(gpipe_timeline(3, 4), gpipe_timeline(3, 4, 1.5));

  EXPECT_TRUE(comparison.same_order());
  EXPECT_NEAR(comparison.step_time_ratio, 1.5, rounding);
  EXPECT_NEAR(comparison.ranks[2].compute_ratio, 1.5, rounding);
  EXPECT_NEAR(comparison.bubble_difference, 0.0, rounding);
}

TEST(Compare, NamesTheFirstActionThatDiffers) {
  const auto a = gpipe_timeline(2, 3);
  auto b = a;
  std::swap(b.spans[1].action, b.spans[2].action);

  const auto comparison = compare(a, b);

  EXPECT_FALSE(comparison.ranks[0].same_order);
  EXPECT_THAT(comparison.ranks[0].first_difference, HasSubstr("compute, action 1: 0F1.0 against 0F2.0"));
  EXPECT_TRUE(comparison.ranks[1].same_order);
  EXPECT_THAT(to_text(comparison), HasSubstr("0F1.0 against 0F2.0"));
}

TEST(Compare, NamesAnActionThatIsMissing) {
  const auto a = gpipe_timeline(1, 2);
  auto b = a;
  b.spans.pop_back();

  EXPECT_THAT(compare(a, b).ranks[0].first_difference, HasSubstr("0B1.0 against nothing"));
}

TEST(Compare, DoesNotOrderMessagesOfDifferentChannels) {
  auto a = gpipe_timeline(3, 1);
  auto b = a;
  a.spans.push_back(testing::message(1, Op::send_forward, 2, 0, 1, 2));
  a.spans.push_back(testing::message(1, Op::send_backward, 0, 0, 3, 4));
  b.spans.push_back(testing::message(1, Op::send_backward, 0, 0, 1, 2));
  b.spans.push_back(testing::message(1, Op::send_forward, 2, 0, 3, 4));

  EXPECT_TRUE(compare(a, b).same_order());
}

TEST(Compare, HoldsOneStepAgainstEachOfMany) {
  auto run = gpipe_timeline(2, 2);
  for (auto span : gpipe_timeline(2, 2).spans) {
    span.step = 1;
    run.spans.push_back(span);
  }
  std::swap(run.spans[8].action, run.spans[9].action);  // the first two forwards of rank 0 in step 1

  EXPECT_THAT(compare(gpipe_timeline(2, 2), run).ranks[0].first_difference, HasSubstr("step 1"));
}

TEST(Compare, RefusesDifferentNumbersOfRanksAndEmptyTimelines) {
  EXPECT_THROW(compare(gpipe_timeline(2, 2), gpipe_timeline(3, 2)), Error);
  EXPECT_THROW(compare(gpipe_timeline(2, 2), {"none", 2, {}, {}}), Error);
}

}  // namespace
}  // namespace penstock
