// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule_index.hpp"

#include "schedule/semantics.hpp"

namespace penstock {

namespace {

constexpr int first_stage_op = static_cast<int>(Op::offload_gradients);
constexpr int ops_per_stage = op_count - first_stage_op;

bool is_below(std::int32_t value, std::int32_t limit) {
  return value >= 0 && value < limit;
}

std::size_t cell(const ScheduleShape& shape, const Action& action) {
  const auto row = static_cast<std::size_t>(action.stage.value()) * static_cast<std::size_t>(shape.micro_batches) +
                   static_cast<std::size_t>(action.micro_batch.value());
  return row * static_cast<std::size_t>(shape.slices) + static_cast<std::size_t>(action.slice.value());
}

/// Whether the stage's W has the part; stays are counted, all other actions have none.
bool has_part(const Schedule& schedule, const Action& action) {
  if (action.part == 0) return true;
  if (begins_or_ends_stay(action.op)) return schedule.streams_parameters;
  const std::int32_t parts = schedule.parts_of_weight(action.stage);
  return action.op == Op::backward_weight && parts > 1 && action.part <= parts;
}

bool is_fetch(Op op) {
  return op == Op::fetch_forward || op == Op::fetch_backward;
}

bool is_eviction(Op op) {
  return op == Op::evict_forward || op == Op::evict_backward;
}

/// Whether the action's stage is one that has actions of its op.
bool has_stage(const Schedule& schedule, const Action& action) {
  if (!schedule.is_share(action.stage)) {
    return !is_collective(action.op) && schedule.ranks(pass_of(action.op)).contains(action.stage);
  }
  return is_collective(action.op) || action.op == Op::fetch_forward || !names_micro_batch(action.op);
}

}  // namespace

bool is_within(const Schedule& schedule, const Action& action) {
  if (action.op == Op::validate) return action == Action{Op::validate, Stage{0}, MicroBatch{0}, Slice{0}};
  const ScheduleShape& shape = schedule.shape;
  const bool per_micro_batch = names_micro_batch(action.op);
  return has_stage(schedule, action) &&
         is_below(action.micro_batch.value(), per_micro_batch ? shape.micro_batches : 1) &&
         is_below(action.slice.value(), per_micro_batch ? shape.slices : 1) && has_part(schedule, action);
}

ScheduleIndex::ScheduleIndex(const Schedule& schedule) : schedule_{&schedule} {
  number_columns();
  const ScheduleShape& shape = schedule.shape;
  const auto stages = static_cast<std::size_t>(schedule.most_stages());
  const auto cells = stages * static_cast<std::size_t>(shape.micro_batches) * static_cast<std::size_t>(shape.slices);
  first_per_stage_ = cells * static_cast<std::size_t>(columns_);
  first_validate_ = first_per_stage_ + stages * ops_per_stage;
  places_.resize(first_validate_ + static_cast<std::size_t>(schedule.actions.size()));
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    std::int32_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      const auto slot = slot_of({rank, action});
      if (slot && places_[*slot].position < 0) places_[*slot] = {rank.value(), position};
      ++position;
    }
    if (schedule.streams_parameters) find_list_needs(rank);
  }
}

void ScheduleIndex::number_columns() {
  for (const auto& list : schedule_->actions) {
    for (const Action& action : list) {
      auto& count = columns_of_[static_cast<std::size_t>(action.op)].count;
      count = std::max(count, 1 + std::int32_t{action.part});
    }
  }
  for (std::size_t op = 0; op < first_stage_op; ++op) {
    columns_of_[op].first = columns_;
    columns_ += columns_of_[op].count;
  }
}

void ScheduleIndex::find_list_needs(Rank rank) {
  const std::array<Pass, 2> passes{Pass::forward, Pass::backward};
  std::array<PerStage<std::int32_t>, 2> fetched;
  for (const Pass pass : passes) {
    fetched[static_cast<std::size_t>(pass)] = PerStage<std::int32_t>(schedule_->most_stages(), -1);
  }
  // Without a second cutting, the fetches of the forward cutting serve both passes.
  const auto fetched_by = [&](Op op) -> PerStage<std::int32_t>& {
    return fetched[static_cast<std::size_t>(schedule_->backward ? pass_of(op) : Pass::forward)];
  };
  std::int32_t evicted = -1;
  std::vector<std::int32_t> needs;
  for (const Action& action : schedule_->actions[rank]) {
    const auto position = static_cast<std::int32_t>(needs.size());
    const bool known = is_within(*schedule_, action);
    const bool reads = known && reads_parameters(action.op);
    needs.push_back(is_fetch(action.op) ? evicted : reads ? fetched_by(action.op)[action.stage] : -1);
    if (is_fetch(action.op) && known) fetched_by(action.op)[action.stage] = position;
    if (is_eviction(action.op)) evicted = position;
  }
  while (list_needs_.size() <= rank.value()) list_needs_.push_back({});
  list_needs_[rank] = std::move(needs);
}

std::optional<std::int32_t> ScheduleIndex::list_need(const ActionOnRank& node) const {
  const auto position = position_of(node);
  if (!position || !list_needs_.contains(node.rank)) return std::nullopt;
  const std::int32_t need = list_needs_[node.rank][static_cast<std::size_t>(*position)];
  if (need < 0) return std::nullopt;
  return need;
}

std::optional<std::size_t> ScheduleIndex::slot_of(const ActionOnRank& node) const {
  const Action& action = node.action;
  if (!is_within(*schedule_, action) || !is_below(node.rank.value(), schedule_->actions.size())) return std::nullopt;
  const auto op = static_cast<std::size_t>(action.op);
  if (action.op == Op::validate) return first_validate_ + static_cast<std::size_t>(node.rank.value());
  if (!names_micro_batch(action.op)) {
    return first_per_stage_ + static_cast<std::size_t>(action.stage.value()) * ops_per_stage + op - first_stage_op;
  }
  const Columns& own = columns_of_[op];
  if (action.part >= own.count) return std::nullopt;
  return cell(schedule_->shape, action) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(own.first) +
         action.part;
}

std::optional<std::int32_t> ScheduleIndex::position_of(const ActionOnRank& node) const {
  const auto slot = slot_of(node);
  if (!slot) return std::nullopt;
  const Place& place = places_[*slot];
  if (place.position < 0 || place.rank != node.rank.value()) return std::nullopt;
  return place.position;
}

bool ScheduleIndex::contains(const Action& action) const {
  const auto rank = schedule_->rank_with(pass_of(action.op), action.stage);
  return rank && position_of({*rank, action}).has_value();
}

}  // namespace penstock
