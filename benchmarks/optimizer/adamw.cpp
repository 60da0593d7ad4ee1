// SPDX-License-Identifier: Apache-2.0
//
// AdamW against the triad, both in the same run on the same threads, in turns, so that what else the machine does meets
// both; and a step that keeps the previous states (memory.rollback: copy) against one that does not.
//
//   benchmark_adamw                 of_triad and of_plain are figures of doc/performance.md
#include <benchmark/benchmark.h>

#include "against_triad.hpp"

namespace penstock {
namespace {

void adamw_against_triad(benchmark::State& state, DType storage) {
  Workers workers{static_cast<std::int32_t>(state.range(0))};
  HostStage stage{benchmark_stage(storage)};
  fill(stage, workers);
  Triad triad{elements_of_stage};
  const AdamWFactors factors = adamw_factors({}, 1e-3, 10, 1.0F);
  std::vector<double> triad_seconds;
  std::vector<double> adamw_seconds;
  for ([[maybe_unused]] auto _ : state) {
    triad_seconds.push_back(seconds_of([&] { triad.run(workers); }));
    adamw_seconds.push_back(seconds_of([&] { step(stage, factors, workers); }));
    state.SetIterationTime(adamw_seconds.back());
  }
  const double triad_rate = triad.bytes() / median(triad_seconds);
  const double adamw_rate = bytes_of_step(storage, elements_of_stage) / median(adamw_seconds);
  state.counters["triad_GB/s"] = triad_rate / 1e9;
  state.counters["adamw_GB/s"] = adamw_rate / 1e9;
  state.counters["of_triad"] = adamw_rate / triad_rate;
  state.SetLabel(std::string{vector_loops().instruction_set});
}

/// A step that can be taken back, taking one back by inversion, and a plain step, in turns on one thread:
/// processor time, which waits for memory but not for other programs.
void rollback_against_plain(benchmark::State& state, DType storage) {
  Workers workers{1};
  auto shape = benchmark_stage(storage);
  HostStage plain{shape};
  shape.keeps_previous = true;
  HostStage keeping{shape};
  fill(plain, workers);
  fill(keeping, workers);
  const AdamWFactors factors = adamw_factors({}, 1e-3, 10, 1.0F);
  step(keeping, factors, workers);  // so that both buffers have their pages
  std::vector<double> plain_seconds;
  std::vector<double> keeping_seconds;
  std::vector<double> inverse_seconds;
  for ([[maybe_unused]] auto _ : state) {
    plain_seconds.push_back(processor_seconds_of([&] { step(plain, factors, workers); }));
    keeping_seconds.push_back(processor_seconds_of([&] { step(keeping, factors, workers); }));
    inverse_seconds.push_back(processor_seconds_of([&] { take_back(plain, factors, workers); }));
    state.SetIterationTime(keeping_seconds.back());
  }
  state.counters["of_plain"] = median(keeping_seconds) / median(plain_seconds);
  state.counters["inverse_of_plain"] = median(inverse_seconds) / median(plain_seconds);
}

void sum_of_squares(benchmark::State& state) {
  const HostBlock block{Bytes{elements_of_stage * 4}, "gradients"};
  std::fill_n(block.as<float>(), elements_of_stage, 1e-3F);
  for ([[maybe_unused]] auto _ : state) {
    for (std::int64_t first = 0; first < elements_of_stage; first += norm_block_elements) {
      benchmark::DoNotOptimize(vector_loops().sum_of_squares(block.as<float>() + first, norm_block_elements));
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * elements_of_stage * 4);
}

void in_turns(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("threads")->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(11);
}

BENCHMARK_CAPTURE(adamw_against_triad, bf16, DType::bf16)->Apply(in_turns);
BENCHMARK_CAPTURE(adamw_against_triad, fp32, DType::f32)->Apply(in_turns);
BENCHMARK_CAPTURE(rollback_against_plain, bf16, DType::bf16)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(11);
BENCHMARK_CAPTURE(rollback_against_plain, fp32, DType::f32)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(11);
BENCHMARK(sum_of_squares)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
