// SPDX-License-Identifier: Apache-2.0
//
// A run as the models of cost see it: its schedule, what each action costs, where each buffer lies. What `simulate`
// shows, what the planner searches, what the priced device executes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cost/prices.hpp"
#include "memory/plan.hpp"
#include "schedule/options.hpp"
#include "schedule/passes.hpp"
#include "schedule/recompute.hpp"
#include "simulate/simulate.hpp"

namespace penstock {

/// What decides it all.
struct ModelledRun {
  CostShape cost;  ///< its stages and what they recompute are filled in by lay_out
  HardwareOptions hardware;
  ScheduleOptions schedule;
  std::string schedule_csv;                                   ///< the text of schedule.file, when that is given
  std::optional<std::vector<std::int32_t>> layers_per_stage;  ///< of the forward pass; as even as possible if absent
  Recompute recompute = Recompute::none;
  RecomputeList recompute_by_stage;  ///< takes its place
  std::int32_t micro_batches = 1;    ///< of one replica and step
  StepsWait steps_wait = StepsWait::for_norm;
  bool stream_parameters = false;    ///< parameters come from the host, whatever the schedule
  std::int32_t resident_stages = 2;  ///< stages that a device then holds at once
  std::optional<Bytes> capacity;     ///< of a device: placed weight gradients wait only as far as it allows
  std::int32_t offload_nearest =
      usual_offload_nearest;  ///< compute actions between forward and backward below which activations stay
};

/// The schedule with its prices.
struct Priced {
  Schedule schedule;
  CostModel costs;
  /// With WeightQueue::dynamic the order in which all should come to run, in place of the latest places of the Ws: what
  /// is simulated. The stages and parts are those of the schedule.
  std::optional<Schedule> expected = {};

  Prices prices() const;       ///< refer to this object
  LinkUses link_uses() const;  ///< likewise; empty on hardware whose links nobody shares
};

/// Generates the schedule, completes it, and cuts the layers. Not validated: generators are proved by tests, and a
/// hand-written file by whoever reads it.
/// @throws Error bad_input for what a schedule or the cost model does not allow; damaged_input for the text of a file.
Priced price(const ModelledRun& run);

/// Where every buffer of every rank lies; the bytes of the cost model. @throws Error as plan_rank
PerRank<RankPlan> plan_ranks(const Priced& priced);

/// The highest end of any buffer of any rank.
Bytes most_planned_bytes(const Priced& priced);

/// One rank of a simulated step.
struct SimulatedRank {
  Bytes peak_device;       ///< highest end of any buffer
  Bytes peak_activations;  ///< activations (offloadable ones too), logits and operands of weight gradients at any one
                           ///< time
  std::int32_t peak_units = 0;  ///< activations of one (stage, micro-batch, slice) at any one time
  Seconds computes;             ///< busy seconds of the compute lane
  Bytes peak_host;  ///< masters, moments, gradients, working copy where parameters are streamed, activations there
};

/// Host memory of the node that needs most: states of its devices' stages, where they are there, and the most
/// activations that are ever offloaded to it. 0 on unit hardware.
Bytes most_host_bytes(const Priced& priced);

/// Of model FLOPs (causal attention, no recomputation) in a step of this length, against the peak of all devices; 0 on
/// unit hardware.
double utilization_of(const Priced& priced, Seconds step);

struct SimulatedStep {
  StepTimes times;
  std::vector<SimulatedRank> ranks;
  double utilization = 0;  ///< see utilization_of
  Timeline timeline;
};

/// Simulates one step, waits for memory included; `prices` and `links` as the members of `priced`, or some multiple.
/// @throws Error damaged_input if the schedule cannot run to its end
Timeline simulated_timeline(const Priced& priced, const PerRank<RankPlan>& plans, const Prices& prices,
                            const LinkUses& links, StepTimes& times);

/// The same with the prices as they are, and what each rank comes to.
/// @throws Error damaged_input if the schedule cannot run to its end
SimulatedStep simulate(const Priced& priced, const PerRank<RankPlan>& plans);

}  // namespace penstock
