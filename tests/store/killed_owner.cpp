// SPDX-License-Identifier: Apache-2.0
// A job whose last rank is killed while the others wait for its parameters: killed_owner [RANKS_PER_NODE]. Prints what
// the names of the job's shared memory would contain.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "comm/environment.hpp"
#include "store/parameter_store.hpp"

int main(int argc, char** argv) {
  using namespace penstock;
  using namespace std::chrono_literals;
  const auto ranks_per_node = argc > 1 ? std::optional{std::stoi(argv[1])} : std::nullopt;
  const MpiEnvironment environment{&argc, &argv};
  const auto world = Communicator::world();
  const Rank owner{world.size() - 1};
  ParameterStore store{
      world, {PerStage<Rank>(1, owner), PerStage<Bytes>(1, Bytes{1 << 24})}, {Fetch::message, ranks_per_node}};
  if (world.rank() == 0) {
    const char* job = std::getenv("PMIX_NAMESPACE");
    fmt::print("job {:x}\n", job == nullptr ? 0L : std::atol(job));
    std::fflush(stdout);
  }
  world.barrier();
  if (world.rank() == owner.value()) {
    std::this_thread::sleep_for(100ms);
    std::raise(SIGKILL);
  }
  store.wait_for(Stage{0}, 0);
  return 0;
}
