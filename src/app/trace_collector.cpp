// SPDX-License-Identifier: Apache-2.0
#include "app/trace_collector.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace penstock {
namespace {

template <class T>
std::string to_bytes(const std::vector<T>& items) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(std::span{items});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};  // NOLINT: bytes as text
}

template <class T>
void append_from(const std::string& bytes, std::vector<T>& to) {
  const auto before = to.size();
  to.resize(before + bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(to.data() + before, bytes.data(), bytes.size());
}

}  // namespace

Seconds common_start(const Communicator& world) {
  world.barrier();
  const Seconds own = now();
  const Seconds last{world.maximum(own.value)};
  return world.split_by_machine().size() == world.size() ? last : own;
}

TraceCollector::TraceCollector(std::string schedule, const RankPlace& place, std::int32_t pipeline, std::int32_t steps,
                               Seconds start)
    : schedule_{std::move(schedule)},
      place_{place},
      pipeline_{pipeline},
      limit_{static_cast<std::size_t>(steps)},
      start_{start} {}

Timeline* TraceCollector::next_step() {
  if (steps_.size() == std::max<std::size_t>(limit_, 2)) steps_.pop_front();
  steps_.emplace_back();
  return &steps_.back();
}

Timeline TraceCollector::merged() const {
  Timeline all;
  const std::int32_t first_rank = place_.first_rank(pipeline_);
  const auto kept = static_cast<std::ptrdiff_t>(std::min(limit_, steps_.size()));
  for (auto step = steps_.end() - kept; step != steps_.end(); ++step) {
    for (auto span : step->spans) {
      span.rank += first_rank;
      if (span.peer >= 0) span.peer += first_rank;
      span.start = span.start - start_;
      span.end = span.end - start_;
      all.spans.push_back(span);
    }
    for (auto sample : step->memory) {
      sample.rank += first_rank;
      sample.time = sample.time - start_;
      all.memory.push_back(sample);
    }
  }
  return all;
}

Timeline TraceCollector::gather(const Communicator& world) const {
  const auto own = merged();
  Timeline joined;
  joined.schedule = schedule_;
  joined.ranks = world.size();
  const auto spans = world.all_gather(to_bytes(own.spans));
  const auto memory = world.all_gather(to_bytes(own.memory));
  if (world.rank() != 0) return joined;
  for (const auto& bytes : spans) append_from(bytes, joined.spans);
  for (const auto& bytes : memory) append_from(bytes, joined.memory);
  return joined;
}

}  // namespace penstock
