// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule_index.hpp"

namespace penstock {

namespace {

constexpr int ops_per_micro_batch = static_cast<int>(Op::fetch_forward);
constexpr int ops_per_stage = op_count - ops_per_micro_batch;

std::size_t cells(const ScheduleShape& shape) {
  return static_cast<std::size_t>(shape.stages) * static_cast<std::size_t>(shape.micro_batches) *
         static_cast<std::size_t>(shape.slices);
}

std::size_t cell(const ScheduleShape& shape, const Action& action) {
  const auto row = static_cast<std::size_t>(action.stage.value()) * static_cast<std::size_t>(shape.micro_batches) +
                   static_cast<std::size_t>(action.micro_batch.value());
  return row * static_cast<std::size_t>(shape.slices) + static_cast<std::size_t>(action.slice.value());
}

bool is_below(std::int32_t value, std::int32_t limit) {
  return value >= 0 && value < limit;
}

}  // namespace

bool is_within(const ScheduleShape& shape, const Action& action) {
  const bool per_micro_batch = is_per_micro_batch(action.op);
  return is_below(action.stage.value(), action.op == Op::validate ? 1 : shape.stages) &&
         is_below(action.micro_batch.value(), per_micro_batch ? shape.micro_batches : 1) &&
         is_below(action.slice.value(), per_micro_batch ? shape.slices : 1);
}

ScheduleIndex::ScheduleIndex(const Schedule& schedule)
    : schedule_{&schedule},
      first_per_stage_{cells(schedule.shape) * ops_per_micro_batch},
      first_validate_{first_per_stage_ + static_cast<std::size_t>(schedule.shape.stages) * ops_per_stage},
      places_(first_validate_ + static_cast<std::size_t>(schedule.actions.size())) {
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    std::int32_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      const auto slot = slot_of({rank, action});
      if (slot && places_[*slot].position < 0) places_[*slot] = {rank.value(), position};
      ++position;
    }
  }
}

std::optional<std::size_t> ScheduleIndex::slot_of(const ActionOnRank& node) const {
  const Action& action = node.action;
  if (!is_within(schedule_->shape, action) || !is_below(node.rank.value(), schedule_->actions.size()))
    return std::nullopt;
  const auto op = static_cast<std::size_t>(action.op);
  if (action.op == Op::validate) return first_validate_ + static_cast<std::size_t>(node.rank.value());
  if (is_per_micro_batch(action.op)) return cell(schedule_->shape, action) * ops_per_micro_batch + op;
  return first_per_stage_ + static_cast<std::size_t>(action.stage.value()) * ops_per_stage + op - ops_per_micro_batch;
}

std::optional<std::int32_t> ScheduleIndex::position_of(const ActionOnRank& node) const {
  const auto slot = slot_of(node);
  if (!slot) return std::nullopt;
  const Place& place = places_[*slot];
  if (place.position < 0 || place.rank != node.rank.value()) return std::nullopt;
  return place.position;
}

bool ScheduleIndex::contains(const Action& action) const {
  return schedule_->rank_of.contains(action.stage) &&
         position_of({schedule_->rank_of[action.stage], action}).has_value();
}

}  // namespace penstock
