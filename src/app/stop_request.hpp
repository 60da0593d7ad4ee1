// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/units.hpp"

namespace penstock {

/// Why a run should end at the next step border, as this rank sees it. Ranks agree on it at the end of each step, so a
/// signal to one rank stops all.
///
/// Signals: SIGUSR1 (what batch systems send before a limit, and mpirun forwards), SIGTERM and SIGINT. A second SIGINT
/// ends the process at once. Stop file: `stop` in the run's directory, removed when it is obeyed.
class StopRequest {
 public:
  /// Installs the signal handlers, for the life of the process. `time_limit`: seconds from the start of the run; 0:
  /// none.
  StopRequest(std::string directory, Seconds time_limit);

  /// The reason, or nothing. `next_step`: how long a step (with a checkpoint) takes, so that the limit is kept.
  std::optional<std::string> reason(Seconds next_step) const;
  /// Removes the stop file. Called by one rank.
  void remove_stop_file() const;

 private:
  std::string stop_file_;
  Seconds start_;
  Seconds time_limit_;
};

}  // namespace penstock
