// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "execute/rank_state.hpp"
#include "trace/timeline.hpp"

namespace penstock {

/// A moment that all ranks mean when they count their times from it: on one machine, whose clock they share, exactly
/// the same; on several, each one's way out of a barrier. Collective.
Seconds common_start(const Communicator& world);

/// Keeps the timelines of the last few steps of one rank, and joins those of all ranks at the end.
class TraceCollector {
 public:
  /// Times are counted from `start` (common_start). `steps`: how many are kept.
  TraceCollector(std::string schedule, const RankPlace& place, std::int32_t pipeline, std::int32_t steps,
                 Seconds start);

  /// The timeline for the executor to fill in for the next step. Earlier ones beyond the limit are dropped, but for
  /// that of the step before: a tail of it may still be under way.
  Timeline* next_step();
  /// All ranks' steps, ranks and peers numbered over the whole job; complete on rank 0, empty elsewhere. Collective.
  Timeline gather(const Communicator& world) const;

 private:
  Timeline merged() const;

  std::string schedule_;
  RankPlace place_;
  std::int32_t pipeline_;
  std::size_t limit_;
  Seconds start_;
  std::deque<Timeline> steps_;
};

}  // namespace penstock
