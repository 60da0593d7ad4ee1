// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "schedule/action.hpp"

namespace penstock {

/// One executed (or simulated) action.
struct Span {
  std::int32_t step = 0;
  std::int32_t rank = 0;  ///< of the whole job
  Lane lane = Lane::compute;
  std::int32_t peer = -1;  ///< of a message: the other rank of the job; else -1
  Action action;
  Seconds start;  ///< since the start of the run's trace
  Seconds end;
  Bytes bytes{0};     ///< of a message or copy; else 0
  Seconds waited{0};  ///< of an action of the compute lane: what it waited for other ranks, all moments together
  Seconds busy() const { return end - start - waited; }
};

/// Device memory of a rank in use (live ranges of the plan) from `time` on.
struct MemorySample {
  std::int32_t step = 0;
  std::int32_t rank = 0;
  Seconds time;
  Bytes in_use{0};
};

/// What happened when: from the executor, or from a simulator.
struct Timeline {
  std::string schedule;  ///< Schedule::name
  std::int32_t ranks = 1;
  std::vector<Span> spans;
  std::vector<MemorySample> memory;
};

}  // namespace penstock
