// SPDX-License-Identifier: Apache-2.0
// Runs on 2 and 3 ranks, of which the last is slow: what the others wait for it inside their actions is no work.
#include "execute/lane_waits.hpp"

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"

namespace penstock {
namespace {

using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;

TEST(LaneWaits, CountsWhatItIsGivenToWaitForOnce) {
  LaneWaits waits;

  for (int i = 0; i < 2; ++i) waits.count([] { std::this_thread::sleep_for(std::chrono::milliseconds{5}); });

  EXPECT_GE(waits.take().value, 10e-3);
  EXPECT_EQ(waits.take().value, 0);
}

/// A step of a rank's compute lane.
struct LaneTimes {
  Seconds busy;
  Seconds waited;
  std::set<Op> waiting;  ///< ops that waited
};

class AShareOfARank : public testing::Test {
 protected:
  /// One micro-batch through a layer on each rank.
  RunShape shape(Exchange exchange, bool vocabulary) const {
    auto model = tiny_model(Family::llama, Tied::no);
    model.layers = world_.size();
    auto of = tiny_run(model, world_.size());
    of.global_batch = of.micro_batch;
    of.schedule = {.kind = ScheduleKind::slimpipe, .slices = 2 * world_.size()};
    of.schedule.exchange = exchange;
    of.schedule.exchange_grain = ExchangeGrain::half;
    of.schedule.vocabulary_parallel = vocabulary;
    return of;
  }

  /// With `longest` delays before what the last rank does.
  LaneTimes times_of_step(const RunShape& of, Seconds longest) const {
    const bool is_slow = world_.rank() + 1 == world_.size();
    TinyTraining training{of, world_, {.seed = 5, .longest = is_slow ? longest : Seconds{0}}};
    Timeline trace;
    training.step(1, TrainingWork::Poison::no, &trace);
    LaneTimes times{training.work.compute_busy(), {}, {}};
    Seconds lengths;
    for (const Span& span : trace.spans) {
      if (span.lane != Lane::compute) continue;
      lengths += span.end - span.start;
      times.waited += span.waited;
      if (span.waited.value > 0) times.waiting.insert(span.action.op);
    }
    EXPECT_NEAR(training.executor.compute_busy().value, (lengths - times.waited).value, 1e-9);
    EXPECT_LE(times.busy.value,
              training.executor.compute_busy().value);  // without the lane's own steps from action to action
    return times;
  }

  /// All that a tiny step works is milliseconds. A rank that took waits for work would be busier by all of them; a
  /// quarter is for what else the machine does.
  void expect_idle_while_the_last_is_slow(const RunShape& of, const std::set<Op>& waiting) const {
    constexpr Seconds longest{0.05};
    const Seconds usual = times_of_step(of, {}).busy;

    const LaneTimes times = times_of_step(of, longest);

    if (world_.rank() + 1 == world_.size()) return;
    EXPECT_GT(times.waited.value, longest.value);
    EXPECT_LT(times.busy.value, usual.value + times.waited.value / 4);
    EXPECT_EQ(times.waiting, waiting);
  }

  Communicator world_ = Communicator::world();
};

TEST_F(AShareOfARank, IsNotBusyWhileItWaitsForThoseThatShareItsAttention) {
  expect_idle_while_the_last_is_slow(shape(Exchange::global, false), {Op::forward, Op::backward});
}

TEST_F(AShareOfARank, IsNotBusyWhileItWaitsForThoseThatShareTheVocabulary) {
  expect_idle_while_the_last_is_slow(shape(Exchange::none, true), {Op::embed_forward, Op::embed_backward,
                                                                   Op::vocabulary_forward, Op::vocabulary_backward});
}

TEST_F(AShareOfARank, WaitsForNobodyInAScheduleWithoutShares) {
  EXPECT_EQ(times_of_step(shape(Exchange::none, false), Seconds{1e-3}).waiting, std::set<Op>{});
}

}  // namespace
}  // namespace penstock
