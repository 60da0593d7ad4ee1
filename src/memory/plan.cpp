// SPDX-License-Identifier: Apache-2.0
#include "memory/plan.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "memory/address_map.hpp"

namespace penstock {

namespace {

std::string text_of(const SymbolicBuffer& buffer) {
  return fmt::format("{} of stage {}, micro-batch {}, slice {}", name_of(buffer.kind), buffer.stage, buffer.micro_batch,
                     buffer.slice);
}

/// A buffer without bytes still gets an address of its own.
Bytes rounded_bytes(Bytes asked) {
  return {round_up(std::max<std::int64_t>(asked.value, 1), buffer_alignment)};
}

/// Counts what is in use by kind and size, and remembers it from when the highest end of a buffer was first reached.
class PeakTable {
 public:
  void add(const PlannedBuffer& planned) {
    ++in_use_[{planned.buffer.kind, planned.bytes}];
    const Bytes end = planned.offset + planned.bytes;
    if (end <= peak_) return;
    peak_ = end;
    at_peak_ = in_use_;
  }
  void remove(const PlannedBuffer& planned) { --in_use_[{planned.buffer.kind, planned.bytes}]; }

  void store(RankPlan& plan) const {
    plan.peak = peak_;
    Bytes used{0};
    for (const auto& [key, count] : at_peak_) {
      if (count == 0) continue;
      const MemoryUse use{key.first, count, key.second};
      plan.table.push_back(use);
      plan.at_peak[use.kind] += use.total();
      used += use.total();
    }
    plan.unused_at_peak = peak_ - used;
    std::stable_sort(plan.table.begin(), plan.table.end(),
                     [](const MemoryUse& a, const MemoryUse& b) { return a.total() > b.total(); });
  }

 private:
  using Counts = std::map<std::pair<BufferKind, Bytes>, std::int64_t>;
  Counts in_use_;
  Counts at_peak_;
  Bytes peak_{0};
};

/// The walk of one rank's list.
class Planner {
 public:
  Planner(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
          const PersistentLayout& persistent)
      : schedule_{schedule}, rank_{rank}, stage_bytes_{stage_bytes}, addresses_{persistent.bytes} {
    plan_.rank = rank;
    plan_.persistent = persistent.buffers;
    plan_.persistent_bytes = persistent.bytes;
    for (const PlannedBuffer& planned : persistent.buffers) peak_.add(planned);
  }

  RankPlan walk() {
    for (const Action& action : schedule_.actions[rank_]) add(action);
    require(live_.empty(),
            "schedule '{}', rank {}: {} buffers are never freed, the first is {}; validate the schedule first",
            schedule_.name, rank_, live_.size(), live_.empty() ? "" : text_of(live_.begin()->first));
    peak_.store(plan_);
    return std::move(plan_);
  }

 private:
  void add(const Action& action) {
    const ActionOnRank node{rank_, action};
    PlannedAction planned{action, {}, frees(schedule_, node), {}};
    std::vector<std::int32_t> freed_by;
    for (const SymbolicBuffer& buffer : takes(schedule_, node)) planned.takes.push_back(take(buffer, freed_by));
    planned.waits_for = without_implied(node, std::move(freed_by));
    const auto position = static_cast<std::int32_t>(plan_.actions.size());
    for (const SymbolicBuffer& buffer : planned.frees) free(buffer, position);
    plan_.actions.push_back(std::move(planned));
  }

  PlannedBuffer take(const SymbolicBuffer& buffer, std::vector<std::int32_t>& freed_by) {
    const Bytes asked = stage_bytes_[buffer.stage][static_cast<std::size_t>(buffer.kind)];
    const Bytes bytes = rounded_bytes(asked);
    const auto taken = addresses_.take(bytes);
    freed_by.insert(freed_by.end(), taken.freed_by.begin(), taken.freed_by.end());
    const PlannedBuffer planned{buffer, taken.offset, bytes};
    require(live_.emplace(buffer, planned).second,
            "schedule '{}', rank {}: {} is taken twice; validate the schedule first", schedule_.name, rank_,
            text_of(buffer));
    peak_.add(planned);
    return planned;
  }

  void free(const SymbolicBuffer& buffer, std::int32_t position) {
    const auto found = live_.find(buffer);
    require(found != live_.end(),
            "schedule '{}', rank {}, action {}: frees {}, which was not taken; validate the schedule first",
            schedule_.name, rank_, position + 1, text_of(buffer));
    const PlannedBuffer planned = found->second;
    live_.erase(found);
    addresses_.free(planned.offset, planned.bytes, position);
    peak_.remove(planned);
  }

  /// The latest of the positions on each lane; none of the lane of the taker itself.
  std::vector<std::int32_t> without_implied(const ActionOnRank& taker, std::vector<std::int32_t> positions) const {
    std::sort(positions.begin(), positions.end(), std::greater<>{});
    std::vector<LaneOfRank> seen{lane_of(taker)};
    std::vector<std::int32_t> kept;
    for (const std::int32_t position : positions) {
      const auto lane = lane_of({rank_, plan_.actions[static_cast<std::size_t>(position)].action});
      if (std::find(seen.begin(), seen.end(), lane) != seen.end()) continue;
      seen.push_back(lane);
      kept.push_back(position);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  using LaneOfRank = std::pair<Lane, std::optional<Channel>>;
  LaneOfRank lane_of(const ActionOnRank& node) const {
    return {penstock::lane_of(node.action.op), channel_of(schedule_, node)};
  }

  const Schedule& schedule_;
  Rank rank_;
  const PerStage<StageBytes>& stage_bytes_;
  AddressMap addresses_;
  std::map<SymbolicBuffer, PlannedBuffer> live_;
  PeakTable peak_;
  RankPlan plan_;
};

}  // namespace

RankPlan plan_rank(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
                   const PersistentLayout& persistent) {
  require(stage_bytes.size() == schedule.most_stages(), "bytes of {} stages for the {} of schedule '{}'",
          stage_bytes.size(), schedule.most_stages(), schedule.name);
  return Planner{schedule, rank, stage_bytes, persistent}.walk();
}

std::vector<MemoryEdge> memory_edges(const RankPlan& plan) {
  std::vector<MemoryEdge> edges;
  for (std::size_t position = 0; position < plan.actions.size(); ++position) {
    for (const std::int32_t before : plan.actions[position].waits_for) {
      edges.push_back({plan.rank, before, static_cast<std::int32_t>(position)});
    }
  }
  return edges;
}

Bytes most_live_bytes(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
                      const PersistentLayout& persistent) {
  Bytes live = persistent.bytes;
  Bytes most = live;
  std::vector<SymbolicBuffer> buffers;
  const auto planned_bytes = [&] {
    Bytes sum;
    for (const SymbolicBuffer& buffer : buffers) {
      sum += rounded_bytes(stage_bytes[buffer.stage][static_cast<std::size_t>(buffer.kind)]);
    }
    buffers.clear();
    return sum;
  };
  for (const Action& action : schedule.actions[rank]) {
    append_takes(schedule, {rank, action}, buffers);
    live += planned_bytes();
    most = std::max(most, live);
    append_frees(schedule, {rank, action}, buffers);
    live = live - planned_bytes();
  }
  return most;
}

std::int32_t most_live(const Schedule& schedule, Rank rank, BufferKind kind) {
  const auto count = [&](const std::vector<SymbolicBuffer>& buffers) {
    const auto is_kind = [&](const SymbolicBuffer& buffer) { return buffer.kind == kind; };
    return static_cast<std::int32_t>(std::count_if(buffers.begin(), buffers.end(), is_kind));
  };
  std::int32_t live = 0;
  std::int32_t most = 0;
  for (const Action& action : schedule.actions[rank]) {
    live += count(takes(schedule, {rank, action}));
    most = std::max(most, live);
    live -= count(frees(schedule, {rank, action}));
  }
  return most;
}

}  // namespace penstock
