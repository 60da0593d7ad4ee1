// SPDX-License-Identifier: Apache-2.0
#include "trace/chrome.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedule/text.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// Whole ones: viewers count in whole nanoseconds, and a fraction that they round otherwise would make neighbours
/// overlap.
std::int64_t microseconds(Seconds time) {
  return std::llround(time.value * 1e6);
}

/// Process 0 is the idle one.
std::int32_t process_of(std::int32_t rank) {
  return rank + 1;
}

Json metadata(const char* kind, std::int32_t rank, std::int64_t thread, const char* key, const Json& value) {
  return {{"name", kind}, {"ph", "M"}, {"pid", process_of(rank)}, {"tid", thread}, {"args", {{key, value}}}};
}

/// Deals the spans of each lane to threads, so that those of one thread follow each other: viewers drop complete events
/// that overlap without one lying inside the other, and several messages are under way at once.
class Threads {
 public:
  explicit Threads(const std::vector<Span>& spans) : spans_{spans}, order_(spans.size()), row_of_span_(spans.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto begin_and_end = [&](std::size_t i) {
      return std::pair{microseconds(spans[i].start), microseconds(spans[i].end)};
    };
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return begin_and_end(a) < begin_and_end(b); });
    for (const std::size_t i : order_) row_of_span_[i] = place(spans[i]);
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const auto first = begin_and_end(a);
      const auto second = begin_and_end(b);
      return first.first != second.first ? first.first < second.first : first.second > second.second;
    });
  }

  std::int64_t of(std::size_t span) const { return number(spans_[span].rank, spans_[span].lane, row_of_span_[span]); }
  /// By start, and of those that start together the longest first: one without length would else be taken for the one
  /// that the others must lie in.
  const std::vector<std::size_t>& drawing_order() const { return order_; }

  /// With the threads of a lane beside each other.
  void name(Json& events) const {
    std::int32_t order = 0;
    for (const auto& [place, ends] : ends_) {
      const auto& [rank, lane] = place;
      for (std::size_t row = 0; row < ends.size(); ++row) {
        const std::string name{name_of(lane)};
        const std::int64_t thread = number(rank, lane, row);
        events.push_back(
            metadata("thread_name", rank, thread, "name", row == 0 ? name : fmt::format("{} {}", name, row + 1)));
        events.push_back(metadata("thread_sort_index", rank, thread, "sort_index", order++));
      }
    }
  }

 private:
  /// Unlike those of all other ranks: Perfetto takes threads of one number for one thread, whatever their process.
  std::int64_t number(std::int32_t rank, Lane lane, std::size_t row) const {
    const auto of_rank = static_cast<std::int64_t>(lane) * most_rows_ + static_cast<std::int64_t>(row);
    return 1 + rank * most_rows_ * lane_count + of_rank;
  }

  /// The row of the lane.
  std::size_t place(const Span& span) {
    auto& ends = ends_[{span.rank, span.lane}];
    const std::int64_t start = microseconds(span.start);
    auto row = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= start; });
    if (row == ends.end()) row = ends.insert(ends.end(), start);
    *row = microseconds(span.end);
    most_rows_ = std::max(most_rows_, static_cast<std::int64_t>(ends.size()));
    return static_cast<std::size_t>(row - ends.begin());
  }

  std::map<std::pair<std::int32_t, Lane>, std::vector<std::int64_t>> ends_;  // of the last span, by row
  const std::vector<Span>& spans_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> row_of_span_;
  std::int64_t most_rows_ = 1;
};

Json arguments_of(const Span& span) {
  Json arguments{{"step", span.step}, {"stage", span.action.stage.value()}};
  if (is_per_micro_batch(span.action.op)) {
    arguments["micro_batch"] = span.action.micro_batch.value();
    arguments["slice"] = span.action.slice.value();
    if (span.action.part != 0) arguments["part"] = span.action.part;
  }
  if (span.peer >= 0) arguments["peer"] = span.peer;
  if (span.bytes.value > 0) arguments["bytes"] = span.bytes.value;
  if (span.waited.value > 0) arguments["waited_us"] = microseconds(span.waited);
  return arguments;
}

Json event_of(const Span& span, std::int64_t thread, std::int32_t slices) {
  return {{"name", to_text(span.action, slices)},
          {"cat", std::string{name_of(span.action.op)}},
          {"ph", "X"},
          {"pid", process_of(span.rank)},
          {"tid", thread},
          {"ts", microseconds(span.start)},
          {"dur", microseconds(span.end) - microseconds(span.start)},
          {"args", arguments_of(span)}};
}

/// Inside its action, at the end; empty if it is too short to be seen.
Json waiting_in(const Span& span, std::int64_t thread) {
  const std::int64_t start = microseconds(span.start);
  const std::int64_t end = microseconds(span.end);
  const std::int64_t waited = std::min(microseconds(span.waited), end - start);
  if (waited <= 0) return {};
  return {{"name", "waiting"}, {"cat", "waiting"},   {"ph", "X"},    {"pid", process_of(span.rank)},
          {"tid", thread},     {"ts", end - waited}, {"dur", waited}};
}

Json event_of(const MemorySample& sample) {
  return {{"name", "device memory"},         {"ph", "C"},
          {"pid", process_of(sample.rank)},  {"tid", 0},
          {"ts", microseconds(sample.time)}, {"args", {{"bytes in use", sample.in_use.value}}}};
}

void name_ranks(const Timeline& timeline, Json& events) {
  for (std::int32_t rank = 0; rank < timeline.ranks; ++rank) {
    events.push_back(metadata("process_name", rank, 0, "name", fmt::format("rank {}", rank)));
    events.push_back(metadata("process_sort_index", rank, 0, "sort_index", rank));
  }
}

}  // namespace

std::string chrome_trace(const Timeline& timeline) {
  std::int32_t slices = 1;
  for (const auto& span : timeline.spans) slices = std::max(slices, span.action.slice.value() + 1);
  Json events = Json::array();
  name_ranks(timeline, events);
  const Threads threads{timeline.spans};
  threads.name(events);
  for (const std::size_t i : threads.drawing_order()) {
    events.push_back(event_of(timeline.spans[i], threads.of(i), slices));
    if (auto waiting = waiting_in(timeline.spans[i], threads.of(i)); !waiting.empty()) events.push_back(waiting);
  }
  for (const auto& sample : timeline.memory) events.push_back(event_of(sample));
  const Json document{
      {"displayTimeUnit", "ms"}, {"otherData", {{"schedule", timeline.schedule}}}, {"traceEvents", events}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name that is no UTF-8 must not throw
}

}  // namespace penstock
