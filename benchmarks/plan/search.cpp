// SPDX-License-Identifier: Apache-2.0
// How long a plan takes: build/benchmark_search
//
// Llama 70B, sequences of 32,768 tokens, on 512 devices of the H100 file: all kinds of schedules, pipelines of up to 64
// ranks. `candidates` is how many there are, `simulated` how many the bounds left.
#include "plan/search.hpp"

#include <benchmark/benchmark.h>

#include "base/error.hpp"
#include "config/hardware_file.hpp"
#include "model/presets.hpp"

namespace penstock {
namespace {

PlanRequest large_request() {
  PlanRequest request;
  request.base.cost.model = preset_spec(ModelPreset::llama2_70b);
  request.base.cost.sequence = 32768;
  request.base.hardware = read_hardware(HARDWARE_FOLDER "/h100.yaml");
  request.base.cost.optimizer = Place::device;
  request.global_batch = 128;
  request.devices = 512;
  const auto& device = request.base.hardware.device;
  request.capacity = device.memory - device.reserve;
  request.search.pipeline = {1, 2, 4, 8, 16, 32, 64};
  request.search.context = {1, 2, 4, 8};
  request.search.offload_activations = {0, 0.5, 1};
  return request;
}

void plan(benchmark::State& state) {
  const PlanRequest request = large_request();
  PlanResult result;
  for ([[maybe_unused]] auto _ : state) result = search(request, static_cast<std::int32_t>(state.range(0)));
  require(!result.best.empty(), "nothing fits");
  state.counters["candidates"] = static_cast<double>(result.counts.candidates);
  state.counters["simulated"] = static_cast<double>(result.counts.simulated);
  state.counters["over_memory"] = static_cast<double>(result.counts.over_memory);
}
BENCHMARK(plan)->ArgName("rows")->Arg(1)->Arg(10)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
