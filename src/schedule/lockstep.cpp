// SPDX-License-Identifier: Apache-2.0
#include "schedule/lockstep.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock {

namespace {

std::int32_t most_in_a_list(const Schedule& schedule) {
  std::size_t most = 0;
  for (const auto& list : schedule.actions) most = std::max(most, list.size());
  return static_cast<std::int32_t>(most);
}

SlotSlices slices_of(const LockstepSlot& slot, std::int32_t ranks) {
  SlotSlices slices{ranks};
  for (const SlotMember& member : slot.members) slices[member.rank] = member.action.slice;
  return slices;
}

}  // namespace

ActionShares shares_of(const LockstepSlot& slot, Rank rank) {
  const auto slice_of = [&](Rank owner) {
    const auto member = std::find_if(slot.members.begin(), slot.members.end(),
                                     [&](const SlotMember& one) { return one.rank == owner; });
    return member->action.slice;
  };
  ActionShares shares;
  for (const ChunkShare& share : slot.shares) {
    const Slice slice = slice_of(share.owner);
    if (share.owner == rank) shares.given.push_back({share.helper, slice, share.begin, share.end});
    if (share.helper == rank) shares.taken.push_back({share.owner, slice, share.begin, share.end});
  }
  return shares;
}

std::vector<std::vector<SlotMember>> groups_of(const LockstepSlot& slot) {
  // By rank, the lowest rank that is known to be in its group; -1: shares with nobody.
  std::vector<std::int32_t> lowest(slot.members.empty() ? 0 : slot.members.back().rank.value() + 1, -1);
  for (const ChunkShare& share : slot.shares) {
    const auto known = [&](Rank rank) {
      auto& of_rank = lowest[static_cast<std::size_t>(rank.value())];
      return of_rank < 0 ? of_rank = rank.value() : of_rank;
    };
    const auto [low, high] = std::minmax({known(share.owner), known(share.helper)});
    std::replace(lowest.begin(), lowest.end(), high, low);
  }
  std::vector<std::vector<SlotMember>> by_lowest(lowest.size());
  for (const SlotMember& member : slot.members) {
    const std::int32_t group = lowest[static_cast<std::size_t>(member.rank.value())];
    if (group >= 0) by_lowest[static_cast<std::size_t>(group)].push_back(member);
  }
  std::erase_if(by_lowest, [](const auto& group) { return group.empty(); });
  return by_lowest;
}

bool shares_attention(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input;
}

Lockstep::Lockstep(const Schedule& schedule) {
  if (!schedule.exchange.shares()) return;
  const std::int32_t ranks = schedule.actions.size();
  const std::int32_t slots_of_pass = most_in_a_list(schedule) + ranks;
  slots_.resize(2 * static_cast<std::size_t>(slots_of_pass));
  for (const Rank rank : all<Rank>(ranks)) number(schedule, rank, slots_of_pass);
  for (LockstepSlot& slot : slots_) slot.shares = share_attention(schedule.exchange, slices_of(slot, ranks));
}

void Lockstep::number(const Schedule& schedule, Rank rank, std::int32_t slots_of_pass) {
  std::int32_t forward = rank.value();
  std::int32_t backward = slots_of_pass + schedule.actions.size() - 1 - rank.value();
  std::int32_t position = 0;
  std::vector<std::int32_t> slot_at;
  for (const Action& action : schedule.actions[rank]) {
    const bool has_slot = shares_attention(action.op);
    slot_at.push_back(!has_slot ? -1 : action.op == Op::forward ? forward++ : backward++);
    if (has_slot) slots_[static_cast<std::size_t>(slot_at.back())].members.push_back({rank, position, action});
    ++position;
  }
  slot_at_.push_back(std::move(slot_at));
}

SharingLimits Lockstep::limits_of(Rank rank) const {
  SharingLimits most;
  const auto raise = [](const std::vector<SharedRange>& ranges, std::int32_t& ranks, std::int32_t& halves) {
    std::int32_t sum = 0;
    for (const SharedRange& range : ranges) sum += range.end - range.begin;
    ranks = std::max(ranks, static_cast<std::int32_t>(ranges.size()));
    halves = std::max(halves, sum);
  };
  for (const LockstepSlot& slot : slots_) {
    const ActionShares shares = shares_of(slot, rank);
    raise(shares.given, most.helpers, most.given);
    raise(shares.taken, most.owners, most.taken);
  }
  return most;
}

const LockstepSlot* Lockstep::slot_of(Rank rank, std::int32_t position) const {
  if (!slot_at_.contains(rank)) return nullptr;
  const std::int32_t slot = slot_at_[rank][static_cast<std::size_t>(position)];
  return slot < 0 ? nullptr : &slots_[static_cast<std::size_t>(slot)];
}

std::vector<std::vector<SlotMember>> groups_of(const Schedule& schedule) {
  const Lockstep lockstep{schedule};
  std::vector<std::vector<SlotMember>> groups;
  for (const LockstepSlot& slot : lockstep.slots()) {
    auto of_slot = groups_of(slot);
    std::move(of_slot.begin(), of_slot.end(), std::back_inserter(groups));
  }
  return groups;
}

}  // namespace penstock
