// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "schedule/graph.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// How much memory weight gradients may wait in.
struct WeightRoom {
  PerRank<Bytes> of_rank;    ///< for what forwards keep and for the operands of weight gradients
  PerStage<Bytes> kept;      ///< of it, one (micro-batch, slice) from F, or R where the stage recomputes, to W
  PerStage<Bytes> operands;  ///< likewise from I to W
};

/// Where each W goes between its I and the latest place that the bound allows.
enum class WeightOrder : std::uint8_t {
  shortest,  ///< where it makes the step shortest
  waiting,   ///< where its rank first waits, as if nobody knew for how long: what WeightQueue::dynamic comes to
  latest     ///< the latest place
};

/// Replaces each B by I and W, and moves the Ws to where their rank would wait (MEPipe's filling, EuroSys 2025, at the
/// grain of one stage, micro-batch and slice, or of single matrix products).
///
/// The Ws of a rank stay in the order of its Is, so that gradients add up in the order that the validator asks for
/// (V8). An I waits for earlier Ws where `limit` of them are kept already: no more weight operands are live on a rank.
/// What found no place stands at the end. A W goes into a gap that it fits, by the given durations; how much longer
/// than the gap it may be is tried in quarters of its own length, up to where every W directly follows its I, and the
/// shortest step is taken, of equal ones that with the Ws earlier. So the step is never longer than with B for I and W
/// together.
///
/// Where `schedule.weight_parts` cuts a stage's W into parts, each fills a gap for itself, in turn; the limit counts
/// whole Ws, of which some part waits. Parts of a W that stay together are tried too: a step with parts is never longer
/// than one without, if the durations of the parts add up.
///
/// `schedule` holds compute actions only: F, B, and R where stages recompute. @pre limit >= 1
/// @throws Error bad_input for a limit below 1; damaged_input if the schedule cannot run.
Schedule place_weight_gradients(const Schedule& schedule, const Prices& durations, std::int32_t limit);

/// The same with as many kept as there is room for: F, R and I wait for earlier Ws that free what they take. A rank
/// whose actions do not fit even with each W directly behind its I has more than its room. With an order other than
/// `shortest` what is said above of the length of the step does not hold.
Schedule place_weight_gradients(const Schedule& schedule, const Prices& durations, const WeightRoom& room,
                                WeightOrder order = WeightOrder::shortest);

}  // namespace penstock
