// SPDX-License-Identifier: Apache-2.0
// What the executor adds to the kernels of a step: build/benchmarks/execute/benchmark_executor
//
// `overhead_percent` is (wall time of the step - time in kernels) / time in kernels, of one rank that runs 1f1b with
// 500 micro-batches: 500 F and 500 B, and the host stages. A kernel keeps its processor busy until a millisecond after
// its own start, so that none makes up for what another lost.
#include "execute/executor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "device/host/host_device.hpp"
#include "memory/plan.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"

namespace penstock {
namespace {

constexpr std::int64_t buffer_bytes = 4096;

/// Is busy for `duration` in every compute action, and adds up how long that was.
class BusyWork : public MemoryWork {
 public:
  explicit BusyWork(Seconds duration) : duration_{duration}, host_(buffer_bytes) {}
  Seconds compute(const Action& /*action*/, const StageBuffers& /*buffers*/) override {
    const Seconds start = now();
    Seconds end = start;
    while (end - start < duration_) end = now();
    busy += end - start;
    return {};
  }
  void cpu(const Action& /*action*/) override {}
  std::span<std::byte> host_gradients(Stage /*stage*/) override { return host_; }
  std::byte* host_activations() override { return host_.data(); }
  Event fetch(const Action& /*action*/, const CopyPlace& place, std::vector<Event> after) override {
    return place.queue->submit(std::move(after), [] {});
  }

  Seconds busy{0};

 private:
  Seconds duration_;
  std::vector<std::byte> host_;
};

RankPlan plan_of(const Schedule& schedule) {
  StageBytes bytes;
  bytes.fill(Bytes{buffer_bytes});
  const PerStage<StageBytes> all_stages(schedule.shape.stages, bytes);
  return plan_rank(schedule, Rank{0}, all_stages, lay_out_persistent({&schedule}, Rank{0}, {all_stages}));
}

/// Steps of one rank on `schedule`, each compute action busy for `duration`.
void run_steps(benchmark::State& state, const Schedule& schedule, Seconds duration) {
  const auto plan = plan_of(schedule);
  const auto device = make_host_device(plan.peak, {});
  auto* base = device->reserve(plan.peak);
  Arena arena{base, plan.peak};
  for (const auto& buffer : plan.persistent) arena.take(buffer.offset, buffer.bytes, "persistent");
  LaneQueues lanes{*device};
  BusyWork work{duration};
  Executor executor{schedule, plan, {&lanes, device.get(), &arena, base, nullptr, &work}};
  Seconds wall{0};
  for ([[maybe_unused]] auto _ : state) {
    const Seconds begin = now();
    executor.run(1, nullptr);
    wall += now() - begin;
  }
  const auto actions = static_cast<double>(plan.actions.size()) * static_cast<double>(state.iterations());
  state.counters["actions"] = static_cast<double>(plan.actions.size());
  state.counters["us_per_action"] = (wall - work.busy).value / actions * 1e6;
  if (duration.value > 0) state.counters["overhead_percent"] = 100 * (wall - work.busy).value / work.busy.value;
}

void step_of_busy_actions(benchmark::State& state) {
  run_steps(state, complete(one_f_one_b({1, 1, 500}), {}), Seconds{0.001});
}
BENCHMARK(step_of_busy_actions)->UseRealTime()->Unit(benchmark::kMillisecond);

/// The same with what makes lists long: two stages, R, and I and W in place of B; 1,000 actions too.
void step_of_many_kinds_of_actions(benchmark::State& state) {
  CompletionOptions options;
  options.recompute = PerStage<bool>{2, true};
  options.split_weight_gradients = true;
  run_steps(state, complete(interleaved({1, 2, 125}), options), Seconds{0.001});
}
BENCHMARK(step_of_many_kinds_of_actions)->UseRealTime()->Unit(benchmark::kMillisecond);

/// No work at all: what an action costs.
void step_of_empty_actions(benchmark::State& state) {
  run_steps(state, complete(one_f_one_b({1, 1, 500}), {}), Seconds{0});
}
BENCHMARK(step_of_empty_actions)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
