// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/meeting.hpp"
#include "comm/shared_links.hpp"
#include "execute/stage_work.hpp"
#include "schedule/lockstep.hpp"
#include "schedule/schedule_index.hpp"
#include "simulate/times.hpp"

namespace penstock {

/// An action that takes longer than its price, by something that no model knows.
struct LateAction {
  Action action;
  Seconds seconds;
};

/// The actions of a step on the priced device: each waits as long as its work would take, from when the executor starts
/// it, which is when all that it waits for was seen complete.
///
/// What the CPU stages of different ranks wait for are real messages without contents: VALIDATE is a barrier, and where
/// a REDUCE or STEP needs that of another rank (tied tables) it is told.
///
/// Actions that exchange attention start together: each tells its partners (groups_of) when its lane is free and its
/// inputs are there, and starts when all have. Meanwhile the lane does nothing else, and is not busy. Ranks cannot wait
/// for each other in a circle where the validator has found no cycle (V5), since all come to what they share in the
/// same order.
class PricedWork : public StageWork {
 public:
  struct Parts {
    const Schedule* schedule = nullptr;
    Rank rank;
    Prices prices;
    LinkUses link_uses;                      ///< of copies; may be empty
    SharedLinks* links = nullptr;            ///< may be null without link_uses
    Meeting* meeting = nullptr;              ///< of the ranks of the schedule; null where none exchange attention
    const Communicator* pipeline = nullptr;  ///< the ranks of the schedule; used by the CPU lane alone
    std::optional<LateAction> late;          ///< on the compute lane
  };
  /// What the parts point to outlives the object.
  explicit PricedWork(Parts parts);
  const Parts& parts() const { return parts_; }

  std::vector<Event> meet_partners(const Action& action, Queue& lane, std::vector<Event> after) override;
  Seconds compute(const Action& action, const StageBuffers& buffers) override;
  void cpu(const Action& action) override;
  Event copy(const Action& action, const CopyPlace& place, std::vector<Event> after) override;

 private:
  /// `after` on another rank needs `before`, both on CPU lanes.
  struct CpuEdge {
    ActionOnRank before;
    ActionOnRank after;
  };
  std::vector<CpuEdge> edges_between_ranks() const;
  std::map<Action, std::vector<Rank>> partners_of_actions() const;
  int tag_of(const CpuEdge& edge) const;

  Parts parts_;
  std::vector<CpuEdge> edges_;  // those that begin or end on this rank
  std::map<Action, std::vector<Rank>> partners_;
};

}  // namespace penstock
