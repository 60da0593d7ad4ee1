// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2 and 4 ranks, each a rank of a pipeline on the priced device.
#include "execute/priced_work.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/priced_transport.hpp"
#include "device/arena.hpp"
#include "device/priced/priced_device.hpp"
#include "execute/executor.hpp"
#include "memory/plan.hpp"
#include "schedule/generators.hpp"
#include "schedule/lockstep.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"
#include "simulate/simulate.hpp"

namespace penstock {
namespace {

constexpr double unit = 4e-3;  // seconds of a forward
constexpr Seconds of_host_actions{3e-3};
constexpr Bytes of_buffers{std::int64_t{1} << 30};  // far more than a test may touch

/// Units of compute, of_host_actions for copies and CPU stages, nothing for messages.
Prices prices_of(const Schedule& schedule) {
  return [units = unit_prices(schedule)](const ActionOnRank& node) {
    const Lane lane = lane_of(node.action.op);
    if (lane == Lane::compute) return Seconds{unit * units(node).value};
    return lane == Lane::send || lane == Lane::receive || node.action.op == Op::validate ? Seconds{0} : of_host_actions;
  };
}

PerRank<RankPlan> plans_of(const Schedule& schedule) {
  StageBytes bytes;
  bytes.fill(of_buffers);
  const PerStage<StageBytes> all_stages(schedule.most_stages(), bytes);
  PerRank<RankPlan> plans;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    plans.push_back(plan_rank(schedule, rank, all_stages, lay_out_persistent({&schedule}, rank, {all_stages})));
  }
  return plans;
}

/// What this rank of a schedule needs to run.
struct RankOnPriced {
  using MakePrices = Prices (*)(const Schedule&);
  RankOnPriced(const Communicator& world, Schedule schedule, std::optional<LateAction> late = {},
               MakePrices make_prices = prices_of)
      : list{std::move(schedule)},
        prices{make_prices(list)},
        plans{plans_of(list)},
        plan{&plans[Rank{world.rank()}]},
        pipeline{world.duplicate()},
        device{make_priced_device(plan->peak, {})},
        base{device->reserve(plan->peak)},
        arena{base, plan->peak},
        transport{make_priced_transport(
            make_mpi_transport(world, {}, Bytes{1 << 20}, Looks::by_bells), world.rank(),
            [](int, int) { return WirePrice{}; }, *device, nullptr)},
        meeting{world},
        lanes{*device},
        work{{.schedule = &list,
              .rank = plan->rank,
              .prices = prices,
              .meeting = &meeting,
              .pipeline = &pipeline,
              .late = late}} {
    for (const auto& buffer : plan->persistent) arena.take(buffer.offset, buffer.bytes, "persistent");
    executor.emplace(list, *plan, ExecutorResources{&lanes, device.get(), &arena, base, transport.get(), &work});
  }

  StepTimes simulated() const {
    StepTimes times;
    penstock::simulate(list, prices, {plans.begin(), plans.end()}, {}, &times);
    return times;
  }
  /// Of another schedule of the same actions.
  Seconds simulated_step_of(const Schedule& schedule) const {
    StepTimes times;
    penstock::simulate(schedule, prices, {plans.begin(), plans.end()}, {}, &times);
    return times.step;
  }

  /// The fastest of three steps over all ranks: a wait is never shorter than its price.
  double measured(Timeline* trace = nullptr) {
    double fastest = 1e9;
    for (int step = 1; step <= 3; ++step) {
      executor->run(step, step == 3 ? trace : nullptr, [this] { barrier.barrier(); });
      fastest = std::min(fastest, barrier.maximum(executor->duration().value));
    }
    return fastest;
  }

  const Schedule list;
  const Prices prices;
  const PerRank<RankPlan> plans;
  const RankPlan* plan;
  Communicator pipeline;
  Communicator barrier = pipeline.duplicate();
  std::unique_ptr<Device> device;
  std::byte* base;

  Arena arena;
  std::unique_ptr<Transport> transport;
  Meeting meeting;
  LaneQueues lanes;
  PricedWork work;

  std::optional<Executor> executor;  // last: waits for the lanes
};

class PricedWorkTest : public testing::Test {
 protected:
  Schedule schedule_of(const std::string& kind, CompletionOptions options = {}, std::int32_t virtual_stages = 1) {
    const auto compute =
        generate(kind, {.pipeline = world_.size(), .virtual_stages = virtual_stages, .micro_batches = 4});
    options.recompute = PerStage<bool>{compute.ranks(Pass::backward).size(), false};
    return complete(compute, options);
  }

  Communicator world_ = Communicator::world();
};

/// Room for what a busy machine adds to the fastest of three short steps.
constexpr double room = 1.25;

void expect_simulated_time(RankOnPriced& rank) {
  const double simulated = rank.simulated().step.value;

  const double measured = rank.measured();

  EXPECT_GT(measured, 0.98 * simulated);  // ranks leave the barrier before a step one behind the other
  EXPECT_LT(measured, room * simulated);
  EXPECT_EQ(rank.arena.peak(), rank.plan->peak);
}

TEST_F(PricedWorkTest, TakesTheSimulatedTimeAndThePlannedMemory) {
  RankOnPriced rank{world_, schedule_of("1f1b")};

  expect_simulated_time(rank);
}

TEST_F(PricedWorkTest, WaitsForCopiesOfStreamedParameters) {
  RankOnPriced rank{world_, schedule_of("mobius", {}, 2)};

  expect_simulated_time(rank);
}

TEST_F(PricedWorkTest, WaitsForCopiesOfStagesThatComeBack) {
  RankOnPriced rank{world_, schedule_of("zb_v", {.stream_parameters = true, .resident_stages = 1}, 2)};

  expect_simulated_time(rank);
}

TEST_F(PricedWorkTest, WaitsForCopiesOfActivations) {
  RankOnPriced rank{world_, schedule_of("gpipe", {.offload_nearest = 2})};
  const auto moves_activations = [](const PlannedAction& planned) {
    return planned.action.op == Op::reload_activations;
  };
  ASSERT_TRUE(std::any_of(rank.plan->actions.begin(), rank.plan->actions.end(), moves_activations));

  expect_simulated_time(rank);
}

TEST_F(PricedWorkTest, TellsOtherRanksOfTiedTables) {
  RankOnPriced rank{world_, schedule_of("1f1b", {.tied_embeddings = true})};

  expect_simulated_time(rank);
}

TEST_F(PricedWorkTest, WaitsForEachActionAtLeastItsPrice) {
  RankOnPriced rank{world_, schedule_of("gpipe")};
  const auto price_of = prices_of(rank.list);

  Timeline trace;
  rank.measured(&trace);

  ASSERT_EQ(trace.spans.size(), rank.plan->actions.size());
  for (const auto& span : trace.spans) {
    const Seconds price = price_of({rank.plan->rank, span.action});
    EXPECT_GE((span.end - span.start).value, price.value * (1 - 1e-9)) << name_of(span.action.op);
  }
}

TEST_F(PricedWorkTest, IsLateWhereItIsToldTo) {
  const Seconds delay{30e-3};
  RankOnPriced on_time{world_, schedule_of("gpipe")};
  const LateAction late{{Op::forward, Stage{0}, MicroBatch{1}, Slice{0}}, delay};

  RankOnPriced rank{world_, schedule_of("gpipe"), world_.rank() == 0 ? std::optional{late} : std::nullopt};

  // GPipe's first rank has no slack among its forwards: all of the delay is the step's.
  EXPECT_GT(rank.measured(), on_time.simulated().step.value * 0.98 + delay.value);
  EXPECT_LT(rank.measured(), on_time.simulated().step.value * room + delay.value);
}

/// SlimPipe whose ranks exchange attention.
Schedule exchanging(std::int32_t ranks) {
  const auto compute = generate("slimpipe", {.pipeline = ranks,
                                             .micro_batches = 2,
                                             .slices = 2 * ranks,
                                             .exchange = exchange_rule(Exchange::global, std::nullopt)});
  return complete(compute, {.recompute = PerStage<bool>{ranks, false}});
}

/// The end of what the compute lane did before the position.
Seconds end_before(const Timeline& own, std::int32_t position) {
  Seconds end{0};
  for (auto span = own.spans.begin(); span != own.spans.begin() + position; ++span) {
    if (span->lane == Lane::compute) end = std::max(end, span->end);
  }
  return end;
}

/// Of the last rank, in the middle of a slot that all ranks share.
LateAction late_in_lockstep(std::int32_t ranks, Seconds delay) {
  return {{Op::forward, Stage{ranks - 1}, MicroBatch{0}, Slice{ranks}}, delay};
}

TEST_F(PricedWorkTest, LetsThoseThatExchangeAttentionStartWhenAllAreThere) {
  const LateAction late = late_in_lockstep(world_.size(), Seconds{20e-3});
  const bool is_late = world_.rank() == world_.size() - 1;
  RankOnPriced rank{world_, exchanging(world_.size()), is_late ? std::optional{late} : std::nullopt};
  const auto groups = groups_of(rank.list);
  ASSERT_EQ(groups.empty(), world_.size() == 1);
  constexpr double never = 1e18;

  Timeline own;
  rank.measured(&own);

  for (const auto& group : groups) {
    double start = never;
    double ready = -never;
    for (const SlotMember& member : group) {
      if (member.rank.value() != world_.rank()) continue;
      start = own.spans[static_cast<std::size_t>(member.position)].start.value;
      ready = end_before(own, member.position).value;
    }
    const double first_start = -world_.maximum(-start);
    EXPECT_GE(first_start, world_.maximum(ready)) << to_text(group.front().action);
  }
}

/// In each slot one rank has five times the work of the others: in a slot of all ranks the slices are all residues.
Prices one_long_in_each_slot(const Schedule& schedule) {
  return [even = prices_of(schedule), &schedule](const ActionOnRank& node) {
    const bool is_long = shares_attention(node.action.op) && node.action.slice.value() % schedule.shape.ranks == 0;
    return Seconds{(is_long ? 5 : 1) * even(node).value};
  };
}

TEST_F(PricedWorkTest, LetsPartnersOfTheLongestInASlotWaitAsSimulated) {
  RankOnPriced rank{world_, exchanging(world_.size()), {}, one_long_in_each_slot};
  Schedule alone = rank.list;
  alone.exchange = {};
  const StepTimes simulated = rank.simulated();
  const double without_waits = rank.simulated_step_of(alone).value;
  ASSERT_TRUE(world_.size() == 1 || 0.98 * simulated.step.value > 1.1 * without_waits);

  const double measured = rank.measured();

  EXPECT_GT(measured, 0.98 * simulated.step.value);
  EXPECT_LT(measured, room * simulated.step.value);
  // Who waits is not busy meanwhile.
  EXPECT_LT(rank.executor->compute_busy().value,
            room * simulated.computes[static_cast<std::size_t>(world_.rank())].value);
}

}  // namespace
}  // namespace penstock
