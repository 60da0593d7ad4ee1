// SPDX-License-Identifier: Apache-2.0
//
// AdamW against the triad a = b + s c, both in the same run on the same threads, in turns, so that what else the
// machine does meets both. Bytes are counted with ordinary stores: 16 an element for the triad (a is read before it is
// written), 28 for AdamW (master, moments and gradient read, all but the gradient written), and 2 (bf16) or 4 (fp32)
// for the working copy.
//
//   benchmark_adamw                 of_triad is the figure of doc/performance.md
#include <algorithm>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/host_block.hpp"
#include "optimizer/host_stage.hpp"
#include "optimizer/step.hpp"

namespace penstock {
namespace {

constexpr std::int64_t parameter_elements = std::int64_t{1} << 24;
constexpr int parameter_count_of_stage = 4;
constexpr std::int64_t elements = parameter_elements * parameter_count_of_stage;

HostStageShape shape_of(DType storage) {
  HostStageShape shape;
  for (int i = 0; i < parameter_count_of_stage; ++i) {
    Parameter parameter;
    parameter.name = "layers/" + std::to_string(i) + "/ffn/up/weight";
    parameter.role = ParameterRole::up_weight;
    parameter.columns = parameter_elements;
    parameter.init_deviation = 0.02;
    shape.parameters.push_back({parameter, i, shape.working_bytes, shape.gradient_bytes});
    shape.working_bytes += Bytes{parameter_elements * size_of(storage)};
    shape.gradient_bytes += Bytes{parameter_elements * 4};
  }
  shape.storage = storage;
  return shape;
}

/// Three arrays in one block, as AdamW's lie: huge pages, the same tiles and workers.
class Triad {
 public:
  Triad() : block_{Bytes{3 * elements * 4}, "the triad"} { std::fill_n(block_.as<float>(), 3 * elements, 1.0F); }
  void run(Workers& workers) {
    float* a = block_.as<float>();
    workers.for_each(elements / default_tile, [a](std::int64_t tile) {
      float* __restrict out = a + tile * default_tile;
      const float* __restrict b = out + elements;
      const float* __restrict c = b + elements;
      for (std::int64_t i = 0; i < default_tile; ++i) out[i] = b[i] + 0.5F * c[i];
    });
  }

 private:
  HostBlock block_;
};

template <class Work>
double seconds_of(const Work& work) {
  const Seconds start = now();
  work();
  return (now() - start).value;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void adamw_against_triad(benchmark::State& state, DType storage) {
  Workers workers{static_cast<std::int32_t>(state.range(0))};
  HostStage stage{shape_of(storage)};
  stage.initialize(1, workers);
  std::fill_n(reinterpret_cast<float*>(stage.gradients().data()), elements, 1e-3F);
  Triad triad;
  const AdamWFactors factors = adamw_factors({}, 1e-3, 10, 1.0F);
  std::vector<double> triad_seconds;
  std::vector<double> adamw_seconds;
  for (auto _ : state) {
    triad_seconds.push_back(seconds_of([&] { triad.run(workers); }));
    adamw_seconds.push_back(seconds_of([&] { step(stage, factors, workers); }));
    state.SetIterationTime(adamw_seconds.back());
  }
  const double triad_rate = static_cast<double>(elements) * 16 / median(triad_seconds);
  const double adamw_rate =
      static_cast<double>(elements) * static_cast<double>(28 + size_of(storage)) / median(adamw_seconds);
  state.counters["triad_GB/s"] = triad_rate / 1e9;
  state.counters["adamw_GB/s"] = adamw_rate / 1e9;
  state.counters["of_triad"] = adamw_rate / triad_rate;
  state.SetLabel(std::string{vector_loops().instruction_set});
}

void sum_of_squares(benchmark::State& state) {
  const HostBlock block{Bytes{elements * 4}, "gradients"};
  std::fill_n(block.as<float>(), elements, 1e-3F);
  for (auto _ : state) {
    for (std::int64_t first = 0; first < elements; first += norm_block_elements) {
      benchmark::DoNotOptimize(vector_loops().sum_of_squares(block.as<float>() + first, norm_block_elements));
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * elements * 4);
}

BENCHMARK_CAPTURE(adamw_against_triad, bf16, DType::bf16)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(11);
BENCHMARK_CAPTURE(adamw_against_triad, fp32, DType::f32)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(11);
BENCHMARK(sum_of_squares)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
