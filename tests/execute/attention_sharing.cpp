// SPDX-License-Identifier: Apache-2.0
// Runs on 2 and 4 ranks, which share their attention.
#include "execute/attention_sharing.hpp"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/outcome.hpp"
#include "execute/tiny_run.hpp"

namespace penstock {
namespace {

using test::expect_near;
using test::expect_same;
using test::Outcome;
using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::train;

class AttentionSharingOfRanks : public testing::TestWithParam<Family> {
 protected:
  /// Slices of six tokens: two of two and two of one with four of them.
  RunShape shape(Exchange exchange, std::optional<ExchangeGrain> grain, std::int32_t virtual_stages = 1) const {
    RunShape shape = tiny_run(tiny_model(GetParam(), Tied::yes), world_.size());
    shape.schedule.kind = ScheduleKind::slimpipe;
    shape.schedule.slices = 4;
    shape.schedule.virtual_stages = virtual_stages;
    shape.schedule.exchange = exchange;
    shape.schedule.exchange_grain = grain;
    return shape;
  }
  Outcome alone() const { return train(shape(Exchange::none, {}), world_); }

  Communicator world_ = Communicator::world();
};

// Parts of attention are merged in another order.
TEST_P(AttentionSharingOfRanks, TrainsAsRanksThatShareNothing) {
  const Outcome expected = alone();

  for (const Exchange exchange : {Exchange::pairwise, Exchange::global}) {
    for (const ExchangeGrain grain : {ExchangeGrain::chunk, ExchangeGrain::half}) {
      for (const std::int32_t virtual_stages : {1, 2}) {
        SCOPED_TRACE(testing::Message() << deck_name(exchange) << " " << deck_name(grain) << " " << virtual_stages);
        expect_near(train(shape(exchange, grain, virtual_stages), world_), expected);
      }
    }
  }
}

TEST_P(AttentionSharingOfRanks, TakesItsMemoryFromThePlan) {
  const RunShape sharing = shape(Exchange::global, {});
  const RunPlan with = test::plan_of(sharing);
  const RunPlan without = test::plan_of(shape(Exchange::none, {}));

  // That the run takes what is planned every training of this file checks.
  for (const Rank rank : all<Rank>(world_.size())) {
    EXPECT_GT(with.training.ranks[rank].peak, without.training.ranks[rank].peak);
  }
}

TEST_P(AttentionSharingOfRanks, TrainsToTheSameBitsWhateverTheDelaysAndThreads) {
  const RunShape sharing = shape(Exchange::global, ExchangeGrain::half, 2);
  const Outcome expected = train(sharing, world_);

  expect_same(train(sharing, world_, {.seed = 3, .longest = Seconds{2e-3}}), expected);
  expect_same(train(sharing, world_, {.seed = 4, .longest = Seconds{1e-3}}, 2), expected);
}

TEST_P(AttentionSharingOfRanks, TrainsWithSplitBackwardsRecomputationAndUnevenStages) {
  const Outcome expected = alone();

  RunShape sharing = shape(Exchange::global, {});
  sharing.schedule.split_backward = true;
  expect_near(train(sharing, world_), expected);
  sharing.recompute = Recompute::full;
  expect_near(train(sharing, world_), expected);
  sharing.layers_per_stage = std::vector<std::int32_t>(static_cast<std::size_t>(world_.size()), 1);
  sharing.layers_per_stage->back() = 9 - world_.size();
  expect_near(train(sharing, world_), expected);
}

INSTANTIATE_TEST_SUITE_P(, AttentionSharingOfRanks, testing::Values(Family::llama, Family::gpt2),
                         [](const auto& one) { return one.param == Family::llama ? "llama" : "gpt2"; });

}  // namespace
}  // namespace penstock
