// SPDX-License-Identifier: Apache-2.0
#include "memory/weight_memory.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "schedule/passes.hpp"

namespace penstock {
namespace {

/// What a rank has left for activations and operands of weight gradients, beside the most that all else takes.
WeightRoom weight_room(const Schedule& split, const WeightMemory& memory, Bytes capacity) {
  WeightRoom room;
  PerStage<StageBytes> others = memory.bytes;
  for (StageBytes& stage : others) {
    for (const auto& [kind, sizes] :
         {std::pair{BufferKind::activations, &room.kept}, std::pair{BufferKind::weight_operands, &room.operands}}) {
      Bytes& bytes = stage[static_cast<std::size_t>(kind)];
      sizes->push_back({round_up(bytes.value, buffer_alignment)});
      bytes = Bytes{0};
    }
  }
  for (const Rank rank : all<Rank>(split.shape.ranks)) {
    room.of_rank.push_back(capacity - most_live_bytes(split, rank, others, memory.persistent[rank]));
  }
  return room;
}

/// With the Rs of the stages that are marked, unless they are there already.
Schedule with_recompute(const Schedule& compute, const PerStage<bool>& stages) {
  if (std::find(stages.begin(), stages.end(), true) == stages.end()) return compute;
  const auto has_one = [](const std::vector<Action>& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return action.op == Op::recompute; });
  };
  const bool has_all = std::any_of(compute.actions.begin(), compute.actions.end(), has_one);
  return has_all ? compute : add_recompute(compute, stages);
}

Bytes highest_end(const Schedule& schedule, const WeightMemory& memory) {
  Bytes most;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    most = std::max(most, plan_rank(schedule, rank, memory.bytes, memory.persistent[rank]).peak);
  }
  return most;
}

}  // namespace

Schedule place_weight_gradients(const Schedule& compute, const WeightMemory& memory, const Prices& durations,
                                WeightOrder order) {
  const Schedule split = memory.complete(compute);
  const Schedule recomputing = with_recompute(compute, split.recompute);
  const Bytes capacity = memory.capacity.value_or(Bytes{std::numeric_limits<std::int64_t>::max()});
  // What is live at once fits at first; so must the addresses, between which holes are left.
  Bytes room = capacity;
  // What a queue comes to runs at the addresses of the latest places: those must fit.
  const WeightOrder planned = order == WeightOrder::waiting ? WeightOrder::latest : order;
  const auto in_order = [&](Schedule&& placed, const WeightRoom& weights) {
    return order == planned ? std::move(placed) : place_weight_gradients(recomputing, durations, weights, order);
  };
  constexpr int most_attempts = 4;
  for (int attempt = 1; attempt <= most_attempts; ++attempt) {
    const WeightRoom weights = weight_room(split, memory, room);
    Schedule placed = place_weight_gradients(recomputing, durations, weights, planned);
    if (!memory.capacity) return in_order(std::move(placed), weights);
    const Bytes peak = highest_end(memory.complete(placed), memory);
    if (peak <= capacity) return in_order(std::move(placed), weights);
    room = room - (peak - capacity);
  }
  return split_weight_gradients(recomputing);
}

}  // namespace penstock
