// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2 and 4 ranks: training with weight gradients that are placed, or taken from a queue while a rank waits.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

using test::plan_of;
using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;

/// What a deck says of one kind.
ScheduleOptions kind_of(ScheduleKind kind, std::int32_t virtual_stages, std::int32_t slices = 1) {
  ScheduleOptions options;
  options.kind = kind;
  options.virtual_stages = virtual_stages;
  options.slices = slices;
  return options;
}

ScheduleOptions placed(ScheduleOptions options, WeightGrain grain, WeightQueue queue = WeightQueue::fixed) {
  options.weight_gradients = WeightGradients::placed;
  options.weight_grain = grain;
  options.weight_queue = queue;
  return options;
}

RunShape run_of(const ScheduleOptions& options, std::int32_t ranks, Tied tied = Tied::no) {
  RunShape shape = tiny_run(tiny_model(Family::llama, tied), ranks);
  shape.schedule = options;
  return shape;
}

/// Kinds with as many virtual stages as eight layers on up to four ranks have.
std::vector<ScheduleOptions> kinds() {
  ScheduleOptions sharing = kind_of(ScheduleKind::slimpipe, 1, 4);
  sharing.exchange = Exchange::global;
  return {kind_of(ScheduleKind::one_f_one_b, 1), kind_of(ScheduleKind::interleaved, 2),
          kind_of(ScheduleKind::seq1f1b, 1, 3), kind_of(ScheduleKind::svpp, 2, 3), sharing};
}

/// All ways in which the deck can have weight gradients placed.
std::vector<ScheduleOptions> ways_of(const ScheduleOptions& kind) {
  std::vector<ScheduleOptions> ways;
  for (const WeightGrain grain : {WeightGrain::whole, WeightGrain::product}) {
    for (const WeightQueue queue : {WeightQueue::fixed, WeightQueue::dynamic})
      ways.push_back(placed(kind, grain, queue));
  }
  return ways;
}

std::string text_of(const ScheduleOptions& options) {
  return fmt::format("{}, {} slices, {}, {}", deck_name(options.kind), options.slices, deck_name(options.weight_grain),
                     deck_name(options.weight_queue));
}

Bytes most_planned(const RunPlan& plan) {
  Bytes most;
  for (const RankPlan& rank : plan.training.ranks) most = std::max(most, rank.peak);
  return most;
}

/// The parameters after two steps.
std::map<std::string, std::string> trained(TinyTraining& training) {
  for (int step = 1; step <= 2; ++step) training.step(step);
  return training.parameters();
}

class PlacedWeights : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  std::int32_t size_ = world_.size();
};

TEST_F(PlacedWeights, GiveTheParametersOfWholeBackwards) {
  for (const ScheduleOptions& kind : kinds()) {
    for (const Tied tied : {Tied::no, Tied::yes}) {
      TinyTraining whole{run_of(kind, size_, tied), world_};
      const auto expected = trained(whole);

      for (const ScheduleOptions& way : ways_of(kind)) {
        TinyTraining training{run_of(way, size_, tied), world_};

        EXPECT_TRUE(trained(training) == expected) << text_of(way);
        EXPECT_EQ(training.state.peak_device_bytes(),
                  training.plan.planned_device_bytes(training.state.place().coordinate))
            << text_of(way);
      }
    }
  }
}

TEST_F(PlacedWeights, NeedNoParametersFromTheHost) {
  for (const ScheduleOptions& kind : kinds()) {
    TinyTraining whole{run_of(kind, size_), world_};
    const auto expected = trained(whole);

    for (const ScheduleOptions& way : ways_of(kind)) {
      RunShape shape = run_of(way, size_);
      shape.stream_parameters = true;
      shape.resident_stages = 1;
      TinyTraining training{shape, world_};

      EXPECT_TRUE(trained(training) == expected) << text_of(way);
      EXPECT_EQ(training.state.peak_device_bytes(),
                training.plan.planned_device_bytes(training.state.place().coordinate))
          << text_of(way);
    }
  }
}

TEST_F(PlacedWeights, GiveTheSameParametersWhateverDelaysTheyFill) {
  const auto kind = kind_of(ScheduleKind::svpp, 2, 3);
  TinyTraining whole{run_of(kind, size_), world_};
  const auto expected = trained(whole);
  RunShape shape = run_of(placed(kind, WeightGrain::product, WeightQueue::dynamic), size_);
  shape.recompute = Recompute::full;

  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::uint64_t own = 100 * seed + static_cast<std::uint64_t>(world_.rank());
    TinyTraining training{shape, world_, {own, Seconds{0.001}}};

    EXPECT_TRUE(trained(training) == expected) << "seed " << seed;
  }
}

TEST_F(PlacedWeights, WaitOnlyAsFarAsTheDeviceAllows) {
  for (const ScheduleOptions& kind : kinds()) {
    ScheduleOptions split = kind;
    split.weight_gradients = WeightGradients::split;
    const Bytes least = most_planned(plan_of(run_of(split, size_)));
    for (const ScheduleOptions& way : ways_of(kind)) {
      RunShape shape = run_of(way, size_);
      const Bytes most = most_planned(plan_of(shape));
      for (const std::int64_t quarters : {1, 2, 3}) {
        shape.device_capacity = least + Bytes{(most - least).value * quarters / 4};

        EXPECT_LE(most_planned(plan_of(shape)), shape.device_capacity) << text_of(way) << " " << quarters;
      }
      EXPECT_TRUE(most > least || way.weight_queue == WeightQueue::fixed) << text_of(way);
    }
  }
}

TEST_F(PlacedWeights, FollowTheDurationsThatTheRunIsGiven) {
  if (size_ == 1) return;  // nothing waits
  RunShape shape = run_of(placed(kind_of(ScheduleKind::seq1f1b, 1, 3), WeightGrain::product), size_);
  const Schedule usual = plan_of(shape).training.schedule;

  shape.durations = [](const ActionOnRank& node) { return Seconds{node.action.op == Op::backward_weight ? 9.0 : 1.0}; };

  EXPECT_NE(plan_of(shape).training.schedule.actions, usual.actions);
}

TEST_F(PlacedWeights, InAQueueStandLastAndMayRunEarly) {
  const auto kind = kind_of(ScheduleKind::svpp, 2, 3);
  const RunPlan plan = plan_of(run_of(placed(kind, WeightGrain::product, WeightQueue::dynamic), size_));

  for (const auto& list : plan.training.schedule.actions) {
    std::vector<Op> computes;
    for (const Action& action : list) {
      if (lane_of(action.op) == Lane::compute) computes.push_back(action.op);
      EXPECT_EQ(runs_early(plan.training.schedule, action), action.op == Op::backward_weight);
    }
    const auto first = std::find(computes.begin(), computes.end(), Op::backward_weight);
    EXPECT_TRUE(std::all_of(first, computes.end(), [](Op op) { return op == Op::backward_weight; }));
  }
}

TEST_F(PlacedWeights, AreRefusedWhereTheyCannotMove) {
  const auto refusal = [](const RunShape& shape) -> std::string {
    try {
      plan_of(shape);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      return error.what();
    }
    return "planned";
  };
  RunShape offloading = run_of(placed(kind_of(ScheduleKind::one_f_one_b, 1), WeightGrain::whole), size_);
  offloading.offload_activations = 1;
  RunShape with_file = run_of(placed(kind_of(ScheduleKind::one_f_one_b, 1), WeightGrain::whole), size_);
  with_file.schedule.file = "mine.csv";
  with_file.schedule_csv =
      write_schedule_csv(split_weight_gradients(one_f_one_b({.pipeline = size_, .micro_batches = 4})));

  EXPECT_THAT(refusal(run_of(placed(kind_of(ScheduleKind::zb_h1, 1), WeightGrain::whole), size_)),
              testing::HasSubstr("zb_h1 has a place for them"));
  EXPECT_THAT(refusal(offloading), testing::HasSubstr("1f1b would have to fetch its activations from the host again"));
  EXPECT_THAT(refusal(with_file), testing::HasSubstr("'mine.csv' cannot be placed: it lists 0I0 already"));
}

}  // namespace
}  // namespace penstock
