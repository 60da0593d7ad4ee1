// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "schedule/action.hpp"
#include "trace/timeline.hpp"

namespace penstock {

/// The steps that have spans, ascending.
std::vector<std::int32_t> steps_of(const Timeline& timeline);

/// The spans and memory samples of one step.
Timeline only_step(const Timeline& timeline, std::int32_t step);

/// Time of one lane of one rank, over all steps.
struct LaneTime {
  Lane lane = Lane::compute;
  Seconds busy;    ///< of the union of its spans, for channels of one lane may overlap, without what they waited
  Seconds waited;  ///< what they waited (Span::waited)
  std::array<Seconds, op_count> by_op{};  ///< sum of Span::busy of each op
};

struct RankTime {
  std::int32_t rank = 0;
  std::vector<LaneTime> lanes;  ///< those with spans, in the order of Lane
  Seconds busy_of(Lane lane) const;
  Seconds waited() const;  ///< all lanes together
};

/// Where the time went. A step lasts from the first start to the last end over all ranks and lanes.
///
/// With `work` the compute lanes' busy time and p ranks, summed over steps: bubble_makespan = 1 - work / (p x time from
/// the first start to the last end on any compute lane); bubble_span = 1 - work / (p x the longest own first start to
/// own last end of a rank's compute lane).
struct TimelineSummary {
  std::vector<RankTime> ranks;  ///< one per rank, those without spans too
  std::int32_t steps = 0;
  Seconds step_time;  ///< mean over steps
  double bubble_makespan = 0;
  double bubble_span = 0;
};

TimelineSummary summarize(const Timeline& timeline);

/// A table for people: a row per rank with the busy seconds of each lane and op, and what actions waited if any did.
std::string to_text(const TimelineSummary& summary);

/// How one rank of two timelines compares.
struct RankComparison {
  std::int32_t rank = 0;
  bool same_order = false;       ///< every lane, and every channel of messages, ran the same actions in the same order
  std::string first_difference;  ///< "compute, action 3: 1F2 against 1B0"; empty if same_order
  double compute_ratio = 0;      ///< busy time of the compute lane, b / a, per step; 0 if a has none
};

struct TimelineComparison {
  double step_time_ratio = 0;    ///< mean step time, b / a
  double bubble_difference = 0;  ///< bubble_makespan, b - a
  std::vector<RankComparison> ranks;
  bool same_order() const;
};

/// Compares `a` (say predicted) with `b` (measured), step by step; the last step of the shorter stands for its missing
/// ones, so that one simulated step can be held against a whole run. @throws Error bad_input if the ranks or the steps
/// are not comparable (different numbers of ranks, no spans).
TimelineComparison compare(const Timeline& a, const Timeline& b);

std::string to_text(const TimelineComparison& comparison);

}  // namespace penstock
