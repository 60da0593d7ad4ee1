// SPDX-License-Identifier: Apache-2.0
#include "trace/summary.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

struct Interval {
  double start = 0;
  double end = 0;
};

/// Length of the union of intervals.
double union_length(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  double length = 0;
  double covered_to = -std::numeric_limits<double>::infinity();
  for (const auto& interval : intervals) {
    length += std::max(0.0, interval.end - std::max(interval.start, covered_to));
    covered_to = std::max(covered_to, interval.end);
  }
  return length;
}

/// Grows to cover every span given to it.
struct Extent {
  double start = std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();
  void include(const Span& span) {
    start = std::min(start, span.start.value);
    end = std::max(end, span.end.value);
  }
  double length() const { return std::max(0.0, end - start); }
};

/// What one step adds to the mean step time and to the two bubbles.
struct StepTimes {
  double whole = 0;         // all lanes
  double compute = 0;       // first start to last end on any compute lane
  double longest_rank = 0;  // the same, of the rank where it is longest
  double work = 0;
};

StepTimes times_of_step(const std::vector<const Span*>& spans) {
  Extent whole;
  Extent compute;
  std::map<std::int32_t, Extent> by_rank;
  StepTimes times;
  for (const auto* span : spans) {
    whole.include(*span);
    if (span->lane != Lane::compute) continue;
    compute.include(*span);
    by_rank[span->rank].include(*span);
    times.work += span->busy().value;
  }
  times.whole = whole.length();
  times.compute = compute.length();
  for (const auto& [rank, extent] : by_rank) times.longest_rank = std::max(times.longest_rank, extent.length());
  return times;
}

std::map<std::int32_t, std::vector<const Span*>> spans_by_step(const Timeline& timeline) {
  std::map<std::int32_t, std::vector<const Span*>> result;
  for (const auto& span : timeline.spans) result[span.step].push_back(&span);
  return result;
}

LaneTime lane_time(Lane lane, const std::vector<const Span*>& spans) {
  LaneTime time{.lane = lane, .busy = {}, .waited = {}, .by_op = {}};
  std::vector<Interval> intervals;
  for (const auto* span : spans) {
    intervals.push_back({span->start.value, span->end.value});
    time.by_op[static_cast<std::size_t>(span->action.op)] += span->busy();
    time.waited += span->waited;
  }
  time.busy = Seconds{union_length(std::move(intervals))} - time.waited;
  return time;
}

std::vector<RankTime> rank_times(const Timeline& timeline) {
  std::map<std::pair<std::int32_t, Lane>, std::vector<const Span*>> spans;
  for (const auto& span : timeline.spans) spans[{span.rank, span.lane}].push_back(&span);
  std::vector<RankTime> ranks(static_cast<std::size_t>(timeline.ranks));
  for (std::int32_t rank = 0; rank < timeline.ranks; ++rank) ranks[static_cast<std::size_t>(rank)].rank = rank;
  for (const auto& [key, of_lane] : spans)
    ranks.at(static_cast<std::size_t>(key.first)).lanes.push_back(lane_time(key.second, of_lane));
  return ranks;
}

double bubble(double work, double available) {
  return available > 0 ? 1.0 - work / available : 0.0;
}

std::set<Op> ops_in(const TimelineSummary& summary) {
  std::set<Op> ops;
  for (const auto& rank : summary.ranks) {
    for (const auto& lane : rank.lanes) {
      for (int op = 0; op < op_count; ++op) {
        if (lane.by_op[static_cast<std::size_t>(op)].value > 0) ops.insert(static_cast<Op>(op));
      }
    }
  }
  return ops;
}

std::set<Lane> lanes_in(const TimelineSummary& summary) {
  std::set<Lane> lanes;
  for (const auto& rank : summary.ranks) {
    for (const auto& lane : rank.lanes) lanes.insert(lane.lane);
  }
  return lanes;
}

double seconds_of(const RankTime& rank, Op op) {
  double seconds = 0;
  for (const auto& lane : rank.lanes) seconds += lane.by_op[static_cast<std::size_t>(op)].value;
  return seconds;
}

/// Lanes and channels of one rank: messages are ordered only against those with the same peer and op.
using Channel = std::tuple<Lane, std::int32_t, Op>;

Channel channel_of(const Span& span) {
  const bool is_message = span.lane == Lane::send || span.lane == Lane::receive;
  return is_message ? Channel{span.lane, span.peer, span.action.op} : Channel{span.lane, -1, Op::forward};
}

using Orders = std::map<Channel, std::vector<Action>>;

/// Actions of each channel of `rank` in order of their start; ties keep the order of the file.
Orders orders_of(std::vector<const Span*> spans, std::int32_t rank) {
  std::stable_sort(spans.begin(), spans.end(), [](const auto* a, const auto* b) { return a->start < b->start; });
  Orders orders;
  for (const auto* span : spans) {
    if (span->rank == rank) orders[channel_of(*span)].push_back(span->action);
  }
  return orders;
}

constexpr std::int32_t several = 2;  // slices: each is named

std::string label_or_nothing(const std::vector<Action>& actions, std::size_t position) {
  return position < actions.size() ? to_text(actions[position], several) : "nothing";
}

std::optional<std::string> difference(const Channel& channel, const std::vector<Action>& a,
                                      const std::vector<Action>& b) {
  if (a == b) return std::nullopt;
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto position = static_cast<std::size_t>(at_a - a.begin());
  return fmt::format("{}, action {}: {} against {}", name_of(std::get<Lane>(channel)), position,
                     label_or_nothing(a, position), label_or_nothing(b, position));
}

std::optional<std::string> difference(const Orders& a, const Orders& b) {
  std::set<Channel> channels;
  for (const auto& [channel, actions] : a) channels.insert(channel);
  for (const auto& [channel, actions] : b) channels.insert(channel);
  const std::vector<Action> none;
  for (const auto& channel : channels) {
    const auto in_a = a.find(channel);
    const auto in_b = b.find(channel);
    auto found = difference(channel, in_a == a.end() ? none : in_a->second, in_b == b.end() ? none : in_b->second);
    if (found) return found;
  }
  return std::nullopt;
}

using Steps = std::vector<std::vector<const Span*>>;

Steps step_list(const Timeline& timeline) {
  Steps steps;
  for (auto& [step, spans] : spans_by_step(timeline)) steps.push_back(spans);
  return steps;
}

std::string first_difference(const Steps& a, const Steps& b, std::int32_t rank) {
  for (std::size_t step = 0; step < std::max(a.size(), b.size()); ++step) {
    const auto& in_a = a[std::min(step, a.size() - 1)];
    const auto& in_b = b[std::min(step, b.size() - 1)];
    const auto found = difference(orders_of(in_a, rank), orders_of(in_b, rank));
    if (found) return fmt::format("step {} of the trace, {}", step, *found);
  }
  return {};
}

void check_comparable(const Timeline& a, const Timeline& b) {
  if (a.ranks != b.ranks)
    fail(ExitCode::bad_input, "the timelines cannot be compared: {} against {}", counted(a.ranks, "rank"), b.ranks);
  if (a.spans.empty() || b.spans.empty()) {
    fail(ExitCode::bad_input, "the timelines cannot be compared: {} has no spans",
         a.spans.empty() ? "the first" : "the second");
  }
}

double ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0.0;
}

}  // namespace

std::vector<std::int32_t> steps_of(const Timeline& timeline) {
  std::set<std::int32_t> steps;
  for (const auto& span : timeline.spans) steps.insert(span.step);
  return {steps.begin(), steps.end()};
}

Timeline only_step(const Timeline& timeline, std::int32_t step) {
  Timeline result{timeline.schedule, timeline.ranks, {}, {}};
  for (const auto& span : timeline.spans) {
    if (span.step == step) result.spans.push_back(span);
  }
  for (const auto& sample : timeline.memory) {
    if (sample.step == step) result.memory.push_back(sample);
  }
  return result;
}

Seconds RankTime::busy_of(Lane lane) const {
  for (const auto& time : lanes) {
    if (time.lane == lane) return time.busy;
  }
  return {};
}

Seconds RankTime::waited() const {
  Seconds sum;
  for (const auto& time : lanes) sum += time.waited;
  return sum;
}

TimelineSummary summarize(const Timeline& timeline) {
  TimelineSummary summary{.ranks = rank_times(timeline)};
  StepTimes total;
  for (const auto& [step, spans] : spans_by_step(timeline)) {
    const auto times = times_of_step(spans);
    total.whole += times.whole;
    total.compute += times.compute;
    total.longest_rank += times.longest_rank;
    total.work += times.work;
    ++summary.steps;
  }
  if (summary.steps > 0) summary.step_time = {total.whole / summary.steps};
  summary.bubble_makespan = bubble(total.work, total.compute * timeline.ranks);
  summary.bubble_span = bubble(total.work, total.longest_rank * timeline.ranks);
  return summary;
}

std::string to_text(const TimelineSummary& summary) {
  const auto lanes = lanes_in(summary);
  const auto ops = ops_in(summary);
  std::string text =
      fmt::format("{} of {:.6f} s on {}; bubble {:.1f} % of the makespan, {:.1f} % of the longest span\n",
                  counted(summary.steps, "step"), summary.step_time.value,
                  counted(static_cast<std::int64_t>(summary.ranks.size()), "rank"), 100 * summary.bubble_makespan,
                  100 * summary.bubble_span);
  const bool any_waited =
      std::any_of(summary.ranks.begin(), summary.ranks.end(), [](const auto& rank) { return rank.waited().value > 0; });
  text += any_waited
              ? "busy seconds by lane, then by op; waited: for other ranks, inside actions of the compute lane\nrank"
              : "busy seconds by lane, then by op\nrank";
  for (const auto lane : lanes) text += fmt::format(" {:>10}", name_of(lane));
  if (any_waited) text += fmt::format(" {:>10}", "waited");
  text += " |";
  for (const auto op : ops) text += fmt::format(" {:>9}", name_of(op));
  for (const auto& rank : summary.ranks) {
    text += fmt::format("\n{:>4}", rank.rank);
    for (const auto lane : lanes) text += fmt::format(" {:>10.4f}", rank.busy_of(lane).value);
    if (any_waited) text += fmt::format(" {:>10.4f}", rank.waited().value);
    text += " |";
    for (const auto op : ops) text += fmt::format(" {:>9.4f}", seconds_of(rank, op));
  }
  return text + "\n";
}

bool TimelineComparison::same_order() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.same_order; });
}

TimelineComparison compare(const Timeline& a, const Timeline& b) {
  check_comparable(a, b);
  const auto in_a = summarize(a);
  const auto in_b = summarize(b);
  const auto steps_a = step_list(a);
  const auto steps_b = step_list(b);
  TimelineComparison result;
  result.step_time_ratio = ratio(in_b.step_time.value, in_a.step_time.value);
  result.bubble_difference = in_b.bubble_makespan - in_a.bubble_makespan;
  for (std::int32_t rank = 0; rank < a.ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    RankComparison row{.rank = rank, .first_difference = first_difference(steps_a, steps_b, rank)};
    row.same_order = row.first_difference.empty();
    row.compute_ratio = ratio(in_b.ranks[index].busy_of(Lane::compute).value / in_b.steps,
                              in_a.ranks[index].busy_of(Lane::compute).value / in_a.steps);
    result.ranks.push_back(std::move(row));
  }
  return result;
}

std::string to_text(const TimelineComparison& comparison) {
  std::string text = fmt::format("step time {:.4f} x, bubble {:+.1f} points\nrank  compute   order of actions\n",
                                 comparison.step_time_ratio, 100 * comparison.bubble_difference);
  for (const auto& rank : comparison.ranks) {
    text += fmt::format("{:>4}  {:>7.4f}   {}\n", rank.rank, rank.compute_ratio,
                        rank.same_order ? "the same" : rank.first_difference);
  }
  return text;
}

}  // namespace penstock
