// SPDX-License-Identifier: Apache-2.0
#include "trace/chrome.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedule/text.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(Seconds time) {
  return time.value * 1e6;
}

Json name_event(const char* kind, std::int32_t rank, int lane, const std::string& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}};
}

Json arguments_of(const Span& span) {
  Json arguments{{"step", span.step}, {"stage", span.action.stage.value()}};
  if (is_per_micro_batch(span.action.op)) {
    arguments["micro_batch"] = span.action.micro_batch.value();
    arguments["slice"] = span.action.slice.value();
    if (span.action.part != 0) arguments["part"] = span.action.part;
  }
  if (span.peer >= 0) arguments["peer"] = span.peer;
  if (span.bytes.value > 0) arguments["bytes"] = span.bytes.value;
  return arguments;
}

Json event_of(const Span& span, std::int32_t slices) {
  return {{"name", to_text(span.action, slices)},
          {"cat", std::string{name_of(span.action.op)}},
          {"ph", "X"},
          {"pid", span.rank},
          {"tid", static_cast<int>(span.lane)},
          {"ts", microseconds(span.start)},
          {"dur", microseconds(span.end - span.start)},
          {"args", arguments_of(span)}};
}

Json event_of(const MemorySample& sample) {
  return {{"name", "device memory"},
          {"ph", "C"},
          {"pid", sample.rank},
          {"tid", 0},
          {"ts", microseconds(sample.time)},
          {"args", {{"bytes in use", sample.in_use.value}}}};
}

void name_ranks_and_lanes(const Timeline& timeline, Json& events) {
  std::set<std::pair<std::int32_t, Lane>> lanes;
  for (const auto& span : timeline.spans) lanes.emplace(span.rank, span.lane);
  for (std::int32_t rank = 0; rank < timeline.ranks; ++rank)
    events.push_back(name_event("process_name", rank, 0, fmt::format("rank {}", rank)));
  for (const auto& [rank, lane] : lanes)
    events.push_back(name_event("thread_name", rank, static_cast<int>(lane), std::string{name_of(lane)}));
}

}  // namespace

std::string chrome_trace(const Timeline& timeline) {
  std::int32_t slices = 1;
  for (const auto& span : timeline.spans) slices = std::max(slices, span.action.slice.value() + 1);
  Json events = Json::array();
  name_ranks_and_lanes(timeline, events);
  for (const auto& span : timeline.spans) events.push_back(event_of(span, slices));
  for (const auto& sample : timeline.memory) events.push_back(event_of(sample));
  const Json document{
      {"displayTimeUnit", "ms"}, {"otherData", {{"schedule", timeline.schedule}}}, {"traceEvents", events}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name that is no UTF-8 must not throw
}

}  // namespace penstock
