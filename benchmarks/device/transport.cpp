// SPDX-License-Identifier: Apache-2.0
// What a message of the MPI transport costs between two ranks: scripts/mpirun.sh -n 2 build/dev/benchmark_transport
#include "comm/transport.hpp"

#include <cstdio>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"

namespace penstock {
namespace {

constexpr int first_rank = 0;

/// A message of so many bytes to the other rank and back; the time shown is that of one message. Both ranks run the
/// same fixed number of rounds.
void ping_pong(benchmark::State& state) {
  const auto world = Communicator::world();
  const auto transport = make_mpi_transport(world, {});
  const int peer = 1 - world.rank();
  const Bytes bytes{state.range(0)};
  std::vector<std::byte> out(static_cast<std::size_t>(bytes.value));
  std::vector<std::byte> in(out.size());
  const auto send = [&] { return transport->send(peer, Transport::Kind::activations, {}, out.data(), bytes); };
  const auto receive = [&] { return transport->receive(peer, Transport::Kind::activations, {}, in.data(), bytes); };
  const auto round = [&] {
    if (world.rank() == first_rank) send();
    receive().wait();
    if (world.rank() != first_rank) send().wait();
  };
  for (int i = 0; i < 5; ++i) round();
  world.barrier();
  while (state.KeepRunning()) {
    const Seconds begin = now();
    round();
    state.SetIterationTime((now() - begin).value / 2);
  }
  state.SetBytesProcessed(state.iterations() * bytes.value);
}
BENCHMARK(ping_pong)->Arg(8)->Arg(16 << 10)->Iterations(2000)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(ping_pong)->Arg(1 << 20)->Arg(8 << 20)->Iterations(100)->UseManualTime()->Unit(benchmark::kMicrosecond);

class Silent final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

void run(int rank) {
  Silent silent;
  if (rank == first_rank) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    benchmark::RunSpecifiedBenchmarks(&silent);
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  using namespace penstock;
  const MpiEnvironment environment{&argc, &argv};
  benchmark::Initialize(&argc, argv);
  if (environment.size() != 2) {
    log::error(fmt::format("this benchmark runs on 2 ranks, not {}", environment.size()));
    MpiEnvironment::abort(ExitCode::bad_input);
  }
  run(environment.rank());
  return 0;
}
