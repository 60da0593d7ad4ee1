// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace penstock {

/// One rank of a priced run.
struct PricedRankSummary {
  Bytes planned_device{0};
  Bytes peak_device{0};
  Seconds simulated_compute{0};  ///< busy seconds of the compute lane, of one step
  Seconds compute{0};            ///< measured, of the last step
};

/// What summary.json and the last lines of a priced run say.
struct PricedSummary {
  std::string version;
  std::string reason;  ///< why the run ended: "finished", "signal USR1", ...
  int exit_code = 0;
  std::string schedule;
  double time_scale = 1;
  Seconds simulated_step{0};
  std::vector<Seconds> steps;  ///< measured, in order; none of a job that one rank ended
  std::vector<PricedRankSummary> ranks;

  /// The steps' best: whatever else the machine does makes a step longer, never shorter.
  Seconds fastest_step() const;  ///< @pre there are steps
  Seconds mean_step() const;     ///< @pre there are steps
};

std::string to_json(const PricedSummary& summary);
std::string to_text(const PricedSummary& summary);

}  // namespace penstock
