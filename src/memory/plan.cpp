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

/// Which lane, and of messages which channel, an action runs on.
using LaneOfRank = std::pair<Lane, std::optional<Channel>>;

LaneOfRank lane_of_rank(const Schedule& schedule, const ActionOnRank& node) {
  return {lane_of(node.action.op), channel_of(schedule, node)};
}

/// What passes from stage to stage: written or read by messages, and small beside what a stage keeps.
bool is_stream(BufferKind kind) {
  switch (kind) {
    case BufferKind::input:
    case BufferKind::output:
    case BufferKind::output_gradient:
    case BufferKind::input_gradient:
    case BufferKind::checkpoint:
      return true;
    default:
      return false;
  }
}

/// Memory that is freed in the list, and when it may be taken again.
///
/// Lowest address first alone would give a forward the very buffer whose message has only been listed: it would wait
/// for the wire, and so would every action behind it. So what a message or a copy frees is taken again only once the
/// next one of its lane is listed (two buffers in turn); and a stream buffer that a computation frees only after
/// `stream_slack` more computations, so that a receive can be posted before the rank is ready for it.
class ReturningMemory {
 public:
  explicit ReturningMemory(Bytes begin, Bytes end = AddressMap::without_end) : addresses_{begin, end} {}

  AddressMap::Taken take(Bytes bytes) {
    auto taken = addresses_.take(bytes);
    end_ = std::max(end_, taken.offset + bytes);
    return taken;
  }
  AddressMap::Taken take_highest(Bytes bytes) { return addresses_.take_highest(bytes); }

  void free(const PlannedBuffer& planned, std::int32_t position, const LaneOfRank& by) {
    const bool computed = by.first == Lane::compute;
    if (computed && !is_stream(planned.buffer.kind)) return addresses_.free(planned.offset, planned.bytes, position);
    returning_.push_back({planned.offset, planned.bytes, position, by, computed ? stream_slack : 0});
  }

  /// An action of the list comes: what waited for it returns.
  void pass(const LaneOfRank& lane) {
    for (auto range = returning_.begin(); range != returning_.end();) {
      if (range->by != lane || range->left-- > 0) {
        ++range;
        continue;
      }
      addresses_.free(range->offset, range->bytes, range->position);
      range = returning_.erase(range);
    }
  }

  /// The highest end of what take() has given; 0 if it gave nothing.
  Bytes end() const { return end_; }
  /// The highest end of what has not returned.
  Bytes taken_end() const { return addresses_.taken_end(); }

 private:
  static constexpr std::int32_t stream_slack = 2;
  struct Returning {
    Bytes offset;
    Bytes bytes;
    std::int32_t position;
    LaneOfRank by;
    std::int32_t left;
  };

  AddressMap addresses_;
  std::vector<Returning> returning_;
  Bytes end_{0};
};

/// What comes and goes with stages, and is so much larger than the rest that it would find no hole among it.
bool is_of_stage(BufferKind kind) {
  return kind == BufferKind::parameters || kind == BufferKind::backward_parameters || kind == BufferKind::gradients;
}

/// Buffers of three sorts lie in places of their own, one behind the other above the persistent ones: what passes
/// between stages, which would cut the holes that large buffers leave; what comes and goes with stages, parameters
/// from below and gradients from above; and all else.
struct Places {
  Bytes streams_begin;
  Bytes stages_begin;
  Bytes others_begin;
};

/// What of the place for stages no buffer has at the peak.
Bytes unused_of_stages(const RankPlan& plan, const Places& places) {
  Bytes unused = std::min(plan.peak, places.others_begin) - std::min(plan.peak, places.stages_begin);
  for (const auto& [kind, bytes] : plan.at_peak) {
    if (is_of_stage(kind)) unused = unused - bytes;
  }
  return unused;
}

/// How large the places are. What lies in one does not depend on where it begins, nor parameters on gradients; where
/// both grow towards each other their place is as large as both ever were at one time.
class PlaceSizes {
 public:
  PlaceSizes() = default;

  AddressMap::Taken take(BufferKind kind, Bytes bytes) {
    auto taken = memory_of(kind).take(bytes);
    if (is_of_stage(kind)) stages_ = std::max(stages_, parameters_.taken_end() + gradients_.taken_end());
    return taken;
  }
  ReturningMemory& memory_of(BufferKind kind) {
    if (kind == BufferKind::gradients) return gradients_;
    if (is_of_stage(kind)) return parameters_;
    return is_stream(kind) ? streams_ : others_;
  }
  void pass(const LaneOfRank& lane) {
    for (ReturningMemory* memory : {&streams_, &parameters_, &gradients_, &others_}) memory->pass(lane);
  }
  Places places_from(Bytes begin) const { return {begin, begin + streams_.end(), begin + streams_.end() + stages_}; }

 private:
  ReturningMemory streams_{Bytes{0}};
  ReturningMemory parameters_{Bytes{0}};
  ReturningMemory gradients_{Bytes{0}};
  ReturningMemory others_{Bytes{0}};
  Bytes stages_{0};
};

/// Memory in the places found.
class PlacedMemory {
 public:
  explicit PlacedMemory(const Places& places)
      : streams_{places.streams_begin, places.stages_begin},
        stages_{places.stages_begin, places.others_begin},
        others_{places.others_begin} {}

  AddressMap::Taken take(BufferKind kind, Bytes bytes) {
    return kind == BufferKind::gradients ? stages_.take_highest(bytes) : memory_of(kind).take(bytes);
  }
  ReturningMemory& memory_of(BufferKind kind) {
    if (is_of_stage(kind)) return stages_;
    return is_stream(kind) ? streams_ : others_;
  }
  void pass(const LaneOfRank& lane) {
    for (ReturningMemory* memory : {&streams_, &stages_, &others_}) memory->pass(lane);
  }

 private:
  ReturningMemory streams_;
  ReturningMemory stages_;
  ReturningMemory others_;
};

/// The walk of one rank's list.
template <class Memory>
class Planner {
 public:
  Planner(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
          const PersistentLayout& persistent, Memory& memory)
      : schedule_{schedule}, rank_{rank}, stage_bytes_{stage_bytes}, memory_{memory} {
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
    const LaneOfRank lane = lane_of_rank(schedule_, node);
    memory_.pass(lane);
    host_.pass(lane);
    PlannedAction planned{action, {}, frees(schedule_, node), {}, {}};
    std::vector<std::int32_t> freed_by;
    for (const SymbolicBuffer& buffer : takes(schedule_, node)) planned.takes.push_back(take(buffer, freed_by));
    const auto position = static_cast<std::int32_t>(plan_.actions.size());
    if (action.op == Op::offload_activations) planned.host_offset = take_on_host(node, freed_by);
    if (action.op == Op::reload_activations) planned.host_offset = free_on_host(node, position);
    planned.waits_for = without_implied(lane, std::move(freed_by));
    for (const SymbolicBuffer& buffer : planned.frees) free(buffer, position, lane);
    plan_.actions.push_back(std::move(planned));
  }

  Bytes take_on_host(const ActionOnRank& offload, std::vector<std::int32_t>& freed_by) {
    const SymbolicBuffer buffer = *moved_by(schedule_, offload);
    const Bytes bytes = rounded_bytes(bytes_of(buffer));
    const auto taken = host_.take(bytes);
    freed_by.insert(freed_by.end(), taken.freed_by.begin(), taken.freed_by.end());
    on_host_[buffer] = {buffer, taken.offset, bytes};
    plan_.host_peak = host_.end();
    return taken.offset;
  }

  Bytes free_on_host(const ActionOnRank& reload, std::int32_t position) {
    const SymbolicBuffer buffer = *moved_by(schedule_, reload);
    const auto found = on_host_.find(buffer);
    require(found != on_host_.end(),
            "schedule '{}', rank {}, action {}: reloads {}, which is not on the host; validate the schedule first",
            schedule_.name, rank_, position + 1, text_of(buffer));
    const PlannedBuffer planned = found->second;
    on_host_.erase(found);
    host_.free(planned, position, lane_of_rank(schedule_, reload));
    return planned.offset;
  }

  /// What comes and goes with stages has the size of the rank's largest: each then fits where another was.
  Bytes bytes_of(const SymbolicBuffer& buffer) const {
    const auto kind = static_cast<std::size_t>(buffer.kind);
    if (!is_of_stage(buffer.kind)) return stage_bytes_[buffer.stage][kind];
    const Pass pass = buffer.kind == BufferKind::parameters ? Pass::forward : Pass::backward;
    const PerStage<Rank>& ranks = schedule_.ranks(pass);
    Bytes largest;
    for (const Stage stage : all<Stage>(ranks.size())) {
      if (ranks[stage] == rank_) largest = std::max(largest, stage_bytes_[stage][kind]);
    }
    return largest;
  }

  PlannedBuffer take(const SymbolicBuffer& buffer, std::vector<std::int32_t>& freed_by) {
    const Bytes bytes = rounded_bytes(bytes_of(buffer));
    const auto taken = memory_.take(buffer.kind, bytes);
    freed_by.insert(freed_by.end(), taken.freed_by.begin(), taken.freed_by.end());
    const PlannedBuffer planned{buffer, taken.offset, bytes};
    require(live_.emplace(buffer, planned).second,
            "schedule '{}', rank {}: {} is taken twice; validate the schedule first", schedule_.name, rank_,
            text_of(buffer));
    peak_.add(planned);
    return planned;
  }

  void free(const SymbolicBuffer& buffer, std::int32_t position, const LaneOfRank& by) {
    const auto found = live_.find(buffer);
    require(found != live_.end(),
            "schedule '{}', rank {}, action {}: frees {}, which was not taken; validate the schedule first",
            schedule_.name, rank_, position + 1, text_of(buffer));
    const PlannedBuffer planned = found->second;
    live_.erase(found);
    memory_.memory_of(buffer.kind).free(planned, position, by);
    peak_.remove(planned);
  }

  /// The latest of the positions on each lane; none of the lane of the taker itself. That a W which may run early is
  /// complete says nothing of others on its lane, but before its place is past it is complete itself.
  std::vector<std::int32_t> without_implied(const LaneOfRank& taker, std::vector<std::int32_t> positions) const {
    std::sort(positions.begin(), positions.end(), std::greater<>{});
    std::vector<std::pair<LaneOfRank, bool>> seen{{taker, false}, {taker, true}};
    std::vector<std::int32_t> kept;
    for (const std::int32_t position : positions) {
      const Action& action = plan_.actions[static_cast<std::size_t>(position)].action;
      const std::pair lane{lane_of_rank(schedule_, {rank_, action}), runs_early(schedule_, action)};
      if (std::find(seen.begin(), seen.end(), lane) != seen.end()) continue;
      seen.push_back(lane);
      kept.push_back(position);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  const Schedule& schedule_;
  Rank rank_;
  const PerStage<StageBytes>& stage_bytes_;
  Memory& memory_;
  ReturningMemory host_{Bytes{0}};
  std::map<SymbolicBuffer, PlannedBuffer> on_host_;
  std::map<SymbolicBuffer, PlannedBuffer> live_;
  PeakTable peak_;
  RankPlan plan_;
};

}  // namespace

RankPlan plan_rank(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& stage_bytes,
                   const PersistentLayout& persistent) {
  require(stage_bytes.size() == schedule.most_stages(), "bytes of {} stages for the {} of schedule '{}'",
          stage_bytes.size(), schedule.most_stages(), schedule.name);
  PlaceSizes sizes;
  Planner{schedule, rank, stage_bytes, persistent, sizes}.walk();
  const Places places = sizes.places_from(persistent.bytes);
  PlacedMemory memory{places};
  RankPlan plan = Planner{schedule, rank, stage_bytes, persistent, memory}.walk();
  if (schedule.streams_parameters) plan.awaiting_stages = unused_of_stages(plan, places);
  return plan;
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
