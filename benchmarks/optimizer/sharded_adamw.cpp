// SPDX-License-Identifier: Apache-2.0
//
// AdamW on the shards of data-parallel ranks, all ranks of the node at once, against the triad on all of them at once:
// the memory bandwidth is the node's. The two alternate in one run; a turn lasts as long as its last rank, and
// the shortest turns count. In brackets the same by the median of processor time, which waits for memory but not for
// other programs: the figure on a machine that others use.
// Usage: mpirun -n RANKS benchmark_sharded_adamw [THREADS [TURNS]]
#include <cstdlib>
#include <exception>
#include <vector>

#include "against_triad.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"

namespace penstock {
namespace {

/// Of all turns of one kind of work.
struct Turns {
  std::vector<double> seconds;
  std::vector<double> processor_seconds;
};

/// All ranks start together; the longest times count.
template <class Work>
void take_turn(Turns& turns, const Communicator& group, const Work& work) {
  double processor_seconds = 0;
  group.barrier();
  turns.seconds.push_back(group.maximum(seconds_of([&] { processor_seconds = processor_seconds_of(work); })));
  turns.processor_seconds.push_back(group.maximum(processor_seconds));
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
  Turns of_triad;
  Turns of_adamw;
  for (int turn = 0; turn < turns; ++turn) {
    take_turn(of_triad, group, [&] { triad.run(workers); });
    take_turn(of_adamw, group, [&] { step(stage, factors, workers); });
  }
  const double triad_bytes = triad.bytes() * group.size();
  const double adamw_bytes = bytes_of_step(storage, elements_of_stage);
  const double triad_rate = triad_bytes / least(of_triad.seconds);
  const double adamw_rate = adamw_bytes / least(of_adamw.seconds);
  const double by_processor_time =
      adamw_bytes / median(of_adamw.processor_seconds) / (triad_bytes / median(of_triad.processor_seconds));
  log::note("{}: {} ranks of {} threads: triad {:.1f} GB/s, AdamW {:.1f} GB/s ({:.0f} %) [{:.0f} %]",
            storage == DType::bf16 ? "bf16" : "fp32", group.size(), threads, triad_rate / 1e9, adamw_rate / 1e9,
            100 * adamw_rate / triad_rate, 100 * by_processor_time);
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
