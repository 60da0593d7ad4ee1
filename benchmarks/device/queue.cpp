// SPDX-License-Identifier: Apache-2.0
// What queues of the host device cost per piece of work that does nothing: build/dev/benchmark_queue
#include <array>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "device/host/host_device.hpp"

namespace penstock {
namespace {

/// One piece at a time: submit, sleep, be woken.
void submit_and_wait(benchmark::State& state) {
  const auto host = make_host_device(Bytes{0}, {});
  const auto queue = host->make_queue("compute");
  while (state.KeepRunning()) queue->submit({}, [] {}).wait();
}
BENCHMARK(submit_and_wait)->UseRealTime()->Unit(benchmark::kMicrosecond);

/// `count` pieces, each after the one before it, dealt in turn to `queues` queues; the caller waits for the last.
void chain(benchmark::State& state) {
  const auto host = make_host_device(Bytes{0}, {});
  std::vector<std::unique_ptr<Queue>> queues(static_cast<std::size_t>(state.range(0)));
  for (auto& queue : queues) queue = host->make_queue("compute");
  constexpr int count = 1000;
  while (state.KeepRunning()) {
    Event last;
    for (std::size_t i = 0; i < count; ++i) last = queues[i % queues.size()]->submit({last}, [] {});
    last.wait();
  }
  state.counters["per_piece"] = benchmark::Counter(
      static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(chain)->Arg(1)->Arg(2)->ArgName("queues")->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
