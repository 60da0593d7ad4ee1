// SPDX-License-Identifier: Apache-2.0
// How many actions a second are simulated: build/benchmark_simulate
//
// `actions_per_second` counts the entries of all lists of a complete schedule. `times` is what a planner asks of each
// candidate (index, dependence graph, times, summary); `links` the same with a network card that the ranks of a node
// share; `record` the whole timeline, as `penstock simulate` and `show` have it.
#include "simulate/simulate.hpp"

#include <cstdint>

#include <benchmark/benchmark.h>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

/// 32 ranks, 4 stages each, 64 micro-batches, split backward: some 50 thousand actions.
Schedule many_actions() {
  CompletionOptions options;
  options.split_weight_gradients = true;
  return complete(interleaved({.pipeline = 32, .virtual_stages = 4, .micro_batches = 64}), options);
}

std::int64_t actions_of(const Schedule& schedule) {
  std::int64_t actions = 0;
  for (const auto& list : schedule.actions) actions += static_cast<std::int64_t>(list.size());
  return actions;
}

void report(benchmark::State& state, const Schedule& schedule) {
  const auto actions = static_cast<double>(state.iterations() * actions_of(schedule));
  state.counters["actions_per_second"] = benchmark::Counter(actions, benchmark::Counter::kIsRate);
}

/// Messages take a hundredth of a unit, of which the card of a node of eight ranks half.
LinkUse card_of(const Schedule& schedule, const ActionOnRank& node) {
  if (lane_of(node.action.op) != Lane::send) return {};
  const auto peer = peer_of(schedule, node.action);
  return {.links = {2 * (node.rank.value() / 8), 2 * (peer->value() / 8) + 1}, .seconds = Seconds{0.005}};
}

void simulate_times(benchmark::State& state, const Schedule& schedule, const LinkUses& links) {
  const Prices prices = unit_prices();
  for ([[maybe_unused]] auto _ : state) {
    const ScheduleIndex index{schedule};
    const DependenceGraph graph{index};
    const auto times = action_times(graph, prices, links);
    require(times.has_value(), "the schedule has a cycle");
    benchmark::DoNotOptimize(step_times(graph, *times));
  }
  report(state, schedule);
}

void times(benchmark::State& state) {
  simulate_times(state, many_actions(), {});
}
BENCHMARK(times)->Unit(benchmark::kMillisecond);

void links(benchmark::State& state) {
  const Schedule schedule = many_actions();
  simulate_times(state, schedule, [&](const ActionOnRank& node) { return card_of(schedule, node); });
}
BENCHMARK(links)->Unit(benchmark::kMillisecond);

void record(benchmark::State& state) {
  const Schedule schedule = many_actions();
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(simulate(schedule, unit_prices()));
  report(state, schedule);
}
BENCHMARK(record)->Unit(benchmark::kMillisecond);

void generate_and_complete(benchmark::State& state) {
  Schedule schedule;
  for ([[maybe_unused]] auto _ : state) schedule = many_actions();
  report(state, schedule);
}
BENCHMARK(generate_and_complete)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
