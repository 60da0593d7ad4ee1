// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/metrics.hpp"
#include "app/time_account.hpp"
#include "base/units.hpp"
#include "data/entropy.hpp"

namespace penstock {

/// Planned and measured bytes of one rank of the job.
struct RankBytes {
  Bytes planned_device{0};
  Bytes peak_device{0};
  Bytes planned_host{0};
  Bytes resident_set{0};  ///< highest resident memory of the process, all of it: states, device arena, libraries
};

/// How a run ended: what one rank can say alone.
struct RunEnding {
  std::string version;
  std::string reason;  ///< why the run ended: "finished", "signal USR1", what went wrong
  int exit_code = 0;
  std::int64_t first_step = 1;  ///< of this start of the program
  std::int64_t completed_steps = 0;
  std::int64_t tokens = 0;
};

/// What summary.json and the last lines of a run say.
struct RunSummary : RunEnding {
  Seconds seconds{0};  ///< in steps of this start
  double tokens_per_second = 0;
  double training_loss = 0;
  std::optional<double> validation_loss;
  std::optional<Entropies> entropies;
  std::vector<RankBytes> ranks;
  std::array<TimeAccount::Row, activity_count> times{};
  std::optional<std::string> sample;
  std::string sample_prompt;
};

/// The first keys of summary.json alone: for a job that one rank ends at once.
std::string to_json(const RunEnding& ending);
std::string to_json(const RunSummary& summary);
std::string to_text(const RunSummary& summary);

}  // namespace penstock
