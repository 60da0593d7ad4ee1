// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/meeting.hpp"
#include "comm/priced_transport.hpp"
#include "comm/shared_links.hpp"
#include "comm/transport.hpp"
#include "device/arena.hpp"
#include "device/device.hpp"
#include "execute/executor.hpp"
#include "execute/priced_work.hpp"
#include "memory/plan.hpp"
#include "plan/modelled_run.hpp"

namespace penstock {

/// A schedule with the seconds that the priced device waits, and the memory of all ranks. Refers to itself: stays where
/// it is made.
class PricedSchedule {
 public:
  /// `time_scale` multiplies all prices.
  PricedSchedule(Priced priced, double time_scale);
  PricedSchedule(const PricedSchedule&) = delete;
  PricedSchedule& operator=(const PricedSchedule&) = delete;

  const Schedule& schedule() const { return priced_.schedule; }
  const CostShape& shape() const { return priced_.costs.shape(); }
  const PerRank<RankPlan>& plans() const { return plans_; }
  /// Scaled; they refer to this object.
  Prices prices() const;
  LinkUses link_uses() const;  ///< empty where no links are shared
  /// Of messages from one rank to another. @pre the schedule has some
  const WirePrice& wire(Rank from, Rank to) const { return wires_.at({from, to}); }
  /// Numbers of shared links are below this; 0 if there are none.
  std::int32_t links() const { return links_; }

  /// One step as the models have it, with what makes `rank` late.
  Timeline simulate(Rank rank, const std::optional<LateAction>& late, StepTimes& times) const;

 private:
  void add_wires_and_links();

  Priced priced_;
  double time_scale_;
  LinkUses unscaled_link_uses_;
  PerRank<RankPlan> plans_;
  std::map<std::pair<Rank, Rank>, WirePrice> wires_;
  std::int32_t links_ = 0;
};

/// The compute action in the middle of the rank's list, late by `seconds`.
LateAction late_in_the_middle(const Schedule& schedule, Rank rank, Seconds seconds);

/// What one rank of a priced run holds.
class PricedRank {
 public:
  /// Collective over `pipeline`, the ranks of the schedule, which outlives the object, as does `priced`.
  PricedRank(const PricedSchedule& priced, const Communicator& pipeline, Bytes capacity, DelayOptions delays,
             const std::optional<LateAction>& late);

  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  const PricedWork& work() const { return work_; }
  /// For an executor of the same lanes, with work of its own.
  ExecutorResources resources(StageWork& work);
  Bytes planned() const { return plan_->peak; }
  Bytes peak() const { return arena_.peak(); }
  std::string device_description() const { return device_->description(); }

 private:
  const RankPlan* plan_;
  Communicator cpu_messages_;
  std::unique_ptr<Device> device_;
  std::byte* base_;
  Arena arena_;
  std::unique_ptr<SharedLinks> links_;  // null where none is shared
  std::unique_ptr<Transport> transport_;
  Meeting meeting_;
  LaneQueues lanes_;
  PricedWork work_;
  Executor executor_;  // last: waits for the lanes
};

}  // namespace penstock
