// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// What one rank knows at the end of a step's computation.
struct RankReport {
  Seconds compute_busy{0};
  Bytes peak_device_bytes{0};
  std::optional<std::string> stop;  ///< why this rank wants to stop
  std::vector<double> losses;       ///< of its micro-batches; empty without the last stage
  Outcome since_last;               ///< what failed on this rank since its last report
};

/// The same on all ranks.
struct StepReport {
  Seconds compute_busy{0};          ///< summed over ranks
  Bytes peak_device_bytes{0};       ///< largest over ranks
  std::optional<std::string> stop;  ///< the first reason in rank order: all stop, or none
  std::vector<double> losses;       ///< of the global batch's micro-batches, replica after replica
};

/// A report as text that another rank joins to others: what travels with VALIDATE.
std::string packed(const RankReport& report);
/// The reports of all ranks, in rank order. @throws AgreedError if something failed on one of them, with the rank
StepReport joined(const std::vector<std::string>& reports);

/// Collects the reports of all ranks. Collective.
StepReport exchange(const Communicator& world, const RankReport& own);

/// The sum in index order, in double: the same for every layout.
double ordered_sum(const std::vector<double>& values);

}  // namespace penstock
