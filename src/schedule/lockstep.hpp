// SPDX-License-Identifier: Apache-2.0
//
// Part of the semantics (schedule/semantics): which actions of different ranks share their attention, and so run
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/index.hpp"
#include "schedule/action.hpp"
#include "schedule/attention_exchange.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// An action of a slot.
struct SlotMember {
  Rank rank;
  std::int32_t position = 0;  ///< in the list of the rank, from 0
  Action action;
  friend bool operator==(const SlotMember&, const SlotMember&) = default;
};

/// Actions of one pass, at most one a rank, that run together, and what they hand on.
struct LockstepSlot {
  std::vector<SlotMember> members;  ///< ranks ascending
  std::vector<ChunkShare> shares;
  friend bool operator==(const LockstepSlot&, const LockstepSlot&) = default;
};

/// The members of a slot that wait for each other, by what they hand on; members that share with nobody are left out.
/// Ranks ascending.
std::vector<std::vector<SlotMember>> groups_of(const LockstepSlot& slot);

/// A range of half chunks that an action hands on, or attends to for another.
struct SharedRange {
  Rank partner;  ///< the helper of what is handed on, the owner of what is attended to
  Slice slice;   ///< the owner's
  std::int32_t begin = 0;
  std::int32_t end = 0;
  friend bool operator==(const SharedRange&, const SharedRange&) = default;
};

/// What a member of a slot shares.
struct ActionShares {
  std::vector<SharedRange> given;  ///< half chunks ascending, from 0 on
  std::vector<SharedRange> taken;  ///< owners ascending
  bool empty() const { return given.empty() && taken.empty(); }
  friend bool operator==(const ActionShares&, const ActionShares&) = default;
};
ActionShares shares_of(const LockstepSlot& slot, Rank rank);

/// The most that one action of a rank shares: what its memory follows from. Counts of ranks and of half chunks.
struct SharingLimits {
  std::int32_t helpers = 0;
  std::int32_t given = 0;
  std::int32_t owners = 0;
  std::int32_t taken = 0;
  bool shares() const { return helpers > 0 || owners > 0; }
  friend bool operator==(const SharingLimits&, const SharingLimits&) = default;
};

/// Whether the action takes part in slots: F, and B or I. R forms the attention of its slice alone: the Rs of a
/// micro-batch run one behind the other, in no lockstep.
bool shares_attention(Op op);

/// The slots of a schedule whose ranks exchange attention (Schedule::exchange); none in any other schedule.
///
/// Rank r's i-th forward is in forward slot i + r: what rank 0 did r slots before. Backwards start on the last rank:
/// rank r's i-th is in backward slot i + p-1 - r. So the slots of each rank ascend in its list, at the beginning of a
/// step, at its end and between micro-batches too: there a slot has fewer members, or slices of two micro-batches.
class Lockstep {
 public:
  explicit Lockstep(const Schedule& schedule);

  /// Forward slots, then backward slots; behind the last of each empty ones.
  const std::vector<LockstepSlot>& slots() const { return slots_; }
  /// The slot of what stands at a position of a rank's list; null for what shares no attention.
  const LockstepSlot* slot_of(Rank rank, std::int32_t position) const;
  SharingLimits limits_of(Rank rank) const;

 private:
  void number(const Schedule& schedule, Rank rank, std::int32_t slots_of_pass);

  std::vector<LockstepSlot> slots_;
  PerRank<std::vector<std::int32_t>> slot_at_;  // by list position; -1: none
};

/// The groups of all slots of a schedule. None of a group starts before what each of them waits for is done: the one
/// rule that the simulator and the priced device take from here.
std::vector<std::vector<SlotMember>> groups_of(const Schedule& schedule);

}  // namespace penstock
