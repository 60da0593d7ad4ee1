// SPDX-License-Identifier: Apache-2.0
//
// Steps of the optimizer that go on while the next training step has begun.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/rank_on_host.hpp"

namespace penstock {
namespace {

using test::RankOnHost;

/// One rank with two stages whose parameters come from the host; each STEP takes a while.
class TailedRuns : public testing::Test {
 protected:
  explicit TailedRuns(StepsWait wait = StepsWait::for_norm, bool streams = true)
      : host_{complete(interleaved({.pipeline = 1, .virtual_stages = 2, .micro_batches = 2}),
                       {.steps_wait = wait, .stream_parameters = streams})} {
    host_.work.on_cpu = [this](const Action& action) {
      if (action.op != Op::step) return;
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      if (fails_) fail(ExitCode::internal, "a step that fails");
    };
  }

  static std::vector<Span> spans_of(const Timeline& trace, Op op) {
    std::vector<Span> spans;
    std::copy_if(trace.spans.begin(), trace.spans.end(), std::back_inserter(spans),
                 [&](const Span& span) { return span.action.op == op; });
    return spans;
  }
  static Seconds latest_end(const std::vector<Span>& spans) {
    Seconds end;
    for (const Span& span : spans) end = std::max(end, span.end);
    return end;
  }
  static Seconds first_start(const std::vector<Span>& spans) {
    Seconds start = spans.front().start;
    for (const Span& span : spans) start = std::min(start, span.start);
    return start;
  }

  RankOnHost host_;
  bool fails_ = false;
};

TEST_F(TailedRuns, LetTheNextRunBegin) {
  Timeline first;
  Timeline second;

  host_.executor->run_to_tail(1, &first);
  const std::size_t steps_at_return = spans_of(first, Op::step).size();
  host_.executor->run_to_tail(2, &second);
  host_.executor->finish();

  EXPECT_EQ(steps_at_return, 0U);
  ASSERT_EQ(spans_of(first, Op::step).size(), 2U);
  ASSERT_EQ(spans_of(second, Op::step).size(), 2U);
  EXPECT_LT(first_start(spans_of(second, Op::forward)), latest_end(spans_of(first, Op::step)));
  EXPECT_GE(first_start(spans_of(second, Op::offload_gradients)), latest_end(spans_of(first, Op::step)));
  EXPECT_EQ(first.spans.size(), second.spans.size());
  EXPECT_EQ(host_.executor->completed(), static_cast<std::int64_t>(first.spans.size() + second.spans.size()));
}

TEST_F(TailedRuns, AreWholeOnceFinished) {
  Timeline trace;

  host_.executor->run(1, &trace);

  EXPECT_EQ(spans_of(trace, Op::step).size(), 2U);
  EXPECT_GE(host_.executor->duration(), Seconds{0.06});
}

TEST_F(TailedRuns, TellOfATailThatFails) {
  fails_ = true;
  EXPECT_NO_THROW(host_.executor->run_to_tail(1, nullptr));

  EXPECT_THROW(host_.executor->finish(), Error);
}

class RunsOfResidentParameters : public TailedRuns {
 protected:
  RunsOfResidentParameters() : TailedRuns{StepsWait::for_norm, false} {}
};

TEST_F(RunsOfResidentParameters, HaveNoTailSinceTheListFetchesWhatItStepped) {
  Timeline trace;

  host_.executor->run_to_tail(1, &trace);

  EXPECT_EQ(spans_of(trace, Op::step).size(), 2U);
}

class RunsThatStepBeforeTheNorm : public TailedRuns {
 protected:
  RunsThatStepBeforeTheNorm() : TailedRuns{StepsWait::for_reduction} {}
};

TEST_F(RunsThatStepBeforeTheNorm, HaveNoTail) {
  Timeline trace;

  host_.executor->run_to_tail(1, &trace);

  EXPECT_EQ(spans_of(trace, Op::step).size(), 2U);
}

}  // namespace
}  // namespace penstock
