// SPDX-License-Identifier: Apache-2.0
//
// AdamW on the shards of data-parallel ranks, all ranks of the node at once, against the triad on all of them at once:
// the memory bandwidth is the node's. The two alternate in one run; a turn lasts as long as its last rank, and
// the shortest turns count.
// Usage: mpirun -n RANKS benchmark_sharded_adamw [THREADS [TURNS]]
#include <cstdlib>
#include <exception>

#include "against_triad.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"

namespace penstock {
namespace {

/// All ranks start together; the longest time counts.
template <class Work>
double seconds_together(const Communicator& group, const Work& work) {
  group.barrier();
  return group.maximum(seconds_of(work));
}

void measure(const Communicator& group, std::int32_t threads, int turns, DType storage) {
  Workers workers{threads};
  auto shape = benchmark_stage(storage);
  shape.replicas = group.size();
  shape.replica = group.rank();
  HostStage stage{shape};
  fill(stage, workers);
  Triad triad{elements_of_stage / group.size() / default_tile * default_tile};
  const AdamWFactors factors = adamw_factors({}, 1e-3, 10, 1.0F);
  std::vector<double> triad_seconds;
  std::vector<double> adamw_seconds;
  for (int turn = 0; turn < turns; ++turn) {
    triad_seconds.push_back(seconds_together(group, [&] { triad.run(workers); }));
    adamw_seconds.push_back(seconds_together(group, [&] { step(stage, factors, workers); }));
  }
  const double triad_rate = triad.bytes() * group.size() / least(triad_seconds);
  const double adamw_rate = bytes_of_step(storage, elements_of_stage) / least(adamw_seconds);
  log::note("{}: {} ranks of {} threads: triad {:.1f} GB/s, AdamW {:.1f} GB/s ({:.0f} %)",
            storage == DType::bf16 ? "bf16" : "fp32", group.size(), threads, triad_rate / 1e9, adamw_rate / 1e9,
            100 * adamw_rate / triad_rate);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const penstock::MpiEnvironment environment{&argc, &argv};
  const long threads = argc > 1 ? std::max(1L, std::strtol(argv[1], nullptr, 10)) : 1;
  const long turns = argc > 2 ? std::max(1L, std::strtol(argv[2], nullptr, 10)) : 11;
  try {
    for (const auto storage : {penstock::DType::bf16, penstock::DType::f32}) {
      penstock::measure(penstock::Communicator::world().duplicate(), static_cast<std::int32_t>(threads),
                        static_cast<int>(turns), storage);
    }
    return 0;
  } catch (const std::exception& error) {
    penstock::log::error(error.what());
    penstock::MpiEnvironment::abort(penstock::ExitCode::internal);
  }
}
