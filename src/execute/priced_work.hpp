// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/shared_links.hpp"
#include "execute/stage_work.hpp"
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
class PricedWork : public StageWork {
 public:
  struct Parts {
    const Schedule* schedule = nullptr;
    Rank rank;
    Prices prices;
    LinkUses link_uses;                      ///< of copies; may be empty
    SharedLinks* links = nullptr;            ///< may be null without link_uses
    const Communicator* pipeline = nullptr;  ///< the ranks of the schedule; used by the CPU lane alone
    std::optional<LateAction> late;          ///< on the compute lane
  };
  /// What the parts point to outlives the object.
  explicit PricedWork(Parts parts);

  /// Waits for nobody, whatever the action: partners may be earlier or later.
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
  int tag_of(const CpuEdge& edge) const;

  Parts parts_;
  std::vector<CpuEdge> edges_;  // those that begin or end on this rank
};

}  // namespace penstock
