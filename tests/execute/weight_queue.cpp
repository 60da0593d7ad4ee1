// SPDX-License-Identifier: Apache-2.0
//
// Weight gradients that may run before their place in the list, by one rank whose messages come when the test wants.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/rank_on_host.hpp"
#include "schedule/semantics.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/text.hpp"
#include "schedule/weight_placement.hpp"

namespace penstock {
namespace {

using test::RankOnHost;

constexpr std::int64_t plenty = 1'000'000;

/// A schedule with its Ws in the latest places, where at most `units` of one (stage, micro-batch, slice) are kept.
Schedule with_queue(Schedule compute, std::int64_t units, std::uint8_t parts = 1) {
  compute.weight_parts = PerStage<std::uint8_t>(compute.shape.stages, parts);
  compute.weights_run_early = true;
  const WeightRoom room{PerRank<Bytes>(compute.shape.ranks, Bytes{2 * units}),
                        PerStage<Bytes>(compute.shape.stages, Bytes{1}),
                        PerStage<Bytes>(compute.shape.stages, Bytes{1})};
  return complete(place_weight_gradients(compute, unit_prices(), room, WeightOrder::latest), {});
}

std::size_t place_of(const std::vector<Action>& actions, const std::string& text) {
  const auto found = std::find_if(actions.begin(), actions.end(), [&](const Action& a) { return to_text(a) == text; });
  EXPECT_NE(found, actions.end()) << text;
  return static_cast<std::size_t>(found - actions.begin());
}

TEST(AWeightQueue, FillsTheTimeInWhichItsRankWaits) {
  RankOnHost host{with_queue(gpipe({.pipeline = 2, .micro_batches = 3}), plenty)};
  std::promise<void> two_are_done;
  std::atomic<int> weights{0};
  int gradients = 0;
  host.work.on_compute = [&](const Action& action, const StageBuffers&) {
    if (action.op == Op::backward_weight && ++weights == 2) two_are_done.set_value();
  };
  // The third gradient comes when two Ws, which stand at the end of the list, have run.
  host.transport.on_receive = [&, done = two_are_done.get_future().share()](int, Transport::Kind) {
    if (++gradients < 3) return;
    if (done.wait_for(std::chrono::seconds{20}) != std::future_status::ready) {
      throw std::runtime_error{"the rank idles beside a queue of two weight gradients"};
    }
  };

  const Timeline trace = host.traced_run();

  const auto& computed = host.work.computed;
  EXPECT_THAT(std::vector<Action>(computed.end() - 2, computed.end()),
              testing::ElementsAre(Action{Op::backward_input, Stage{0}, MicroBatch{2}},
                                   Action{Op::backward_weight, Stage{0}, MicroBatch{2}}));
  const auto span_of = [&](Op op, int micro_batch) {
    return *std::find_if(trace.spans.begin(), trace.spans.end(), [&](const Span& span) {
      return span.action == Action{op, Stage{0}, MicroBatch{micro_batch}};
    });
  };
  EXPECT_LE(span_of(Op::backward_weight, 1).start, span_of(Op::receive_backward, 2).end);
  EXPECT_EQ(host.arena.peak(), host.plan.peak);
}

TEST(AWeightQueue, IsLeftAloneWhereNothingWaits) {
  // One rank: each action's inputs are there when the one before is complete.
  const Schedule schedule = with_queue(seq1f1b({.pipeline = 1, .micro_batches = 3, .slices = 2}), 3, 2);
  RankOnHost host{schedule};

  host.executor->run(1, nullptr);

  EXPECT_EQ(host.work.computed, host.actions_of(Lane::compute));
}

TEST(AWeightQueue, KeepsTheOrderOfWeightsAndOfAllElseUnderDelays) {
  for (const std::int64_t units : {std::int64_t{9}, std::int64_t{11}, plenty}) {
    const Schedule schedule =
        with_queue(svpp({.pipeline = 2, .virtual_stages = 2, .micro_batches = 3, .slices = 3}), units, 3);
    for (const Rank rank : all<Rank>(2)) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        RankOnHost host{schedule, rank, {seed, Seconds{0.0004}}};

        host.executor->run(1, nullptr);

        const auto& ran = host.work.computed;
        const auto listed = host.actions_of(Lane::compute);
        const auto only = [](const std::vector<Action>& actions, bool weights) {
          std::vector<Action> result;
          std::copy_if(actions.begin(), actions.end(), std::back_inserter(result),
                       [&](const Action& action) { return (action.op == Op::backward_weight) == weights; });
          return result;
        };
        EXPECT_EQ(only(ran, true), only(listed, true));
        EXPECT_EQ(only(ran, false), only(listed, false));
        for (const Action& action : ran) {
          if (action.op != Op::backward_weight) continue;
          EXPECT_LE(place_of(ran, to_text(action)), place_of(listed, to_text(action)));
        }
        EXPECT_EQ(host.arena.peak(), host.plan.peak);
      }
    }
  }
}

TEST(AWeightQueue, IsEmptyBeforeGradientsLeave) {
  const Schedule schedule = with_queue(gpipe({.pipeline = 1, .virtual_stages = 2, .micro_batches = 3}), plenty);
  RankOnHost host{schedule, Rank{0}, {4, Seconds{0.0004}}};

  const Timeline trace = host.traced_run();

  for (const Span& offload : trace.spans) {
    if (offload.action.op != Op::offload_gradients) continue;
    for (const Span& span : trace.spans) {
      const bool adds = span.action.op == Op::backward_weight || span.action.op == Op::backward_input;
      EXPECT_TRUE(!adds || span.action.stage != offload.action.stage || span.end <= offload.start)
          << to_text(span.action);
    }
  }
}

}  // namespace
}  // namespace penstock
