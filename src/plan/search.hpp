// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/candidates.hpp"
#include "plan/modelled_run.hpp"

namespace penstock {

/// One candidate, simulated.
struct PlannedLayout {
  ModelledRun run;
  Seconds step;
  Seconds most_compute;  ///< of the busiest rank
  Seconds exposed_optimizer;
  double bubble_makespan = 0;
  double utilization = 0;
  Bytes peak_device;  ///< of the fullest rank, with every buffer at its address
};

/// What became of the candidates.
struct SearchCounts {
  std::int64_t candidates = 0;
  std::int64_t over_memory_bound = 0;  ///< dropped: their closed form is over the capacity
  std::int64_t over_time_bound = 0;    ///< dropped: their closed form is behind the rows found
  std::int64_t over_memory = 0;        ///< do not fit, seen in their lists: what is live, or the addresses
  std::int64_t over_host_memory = 0;   ///< fit the device, but what goes to the host is more than its memory
  std::int64_t simulated = 0;

  /// The candidates of which it is known what became of them.
  std::int64_t decided() const {
    return over_memory_bound + over_time_bound + over_memory + over_host_memory + simulated;
  }
};

struct PlanResult {
  std::vector<PlannedLayout> best;  ///< that fit, the shortest step first
  SearchCounts counts;
  std::optional<PlannedLayout> closest;  ///< where none fits: that with the fewest bytes, not simulated
};

enum class Pruning : std::uint8_t { by_bounds, none };

/// Is shown the result so far whenever one more candidate is decided, for people who wait.
using SearchObserver = std::function<void(const PlanResult& so_far)>;

/// Simulates the candidates of the request, those with the shortest possible step first, until no other can be among
/// the `rows` best. With Pruning::none all of them. Waits for memory are left out; a layout is taken if its addresses
/// fit. Ties keep the order of `candidates`.
PlanResult search(const PlanRequest& request, std::int32_t rows, Pruning pruning = Pruning::by_bounds,
                  const SearchObserver& observer = {});

/// Changes of the request, the least first, until something fits: activations recomputed, then on the host, then
/// parameters on the host, then twice the devices and so on. Gives a sentence; empty if nothing of this helps.
std::string what_would_fit(const PlanRequest& request);

}  // namespace penstock
