// SPDX-License-Identifier: Apache-2.0
//
// When each action of a schedule runs, without a record of it: what a planner asks for thousands of schedules.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "schedule/graph.hpp"
#include "schedule/schedule_index.hpp"

namespace penstock {

/// Links that several ranks share, such as the network card of a node: one message at a time, in the order in which
/// they could leave.
struct LinkUse {
  static constexpr std::int32_t none = -1;
  std::array<std::int32_t, 2> links{none, none};  ///< out of the sender's node, into the receiver's
  Seconds seconds;                                ///< for which they are taken; at most the price of the message
};
/// The shared links that an action takes. Of a message the send is asked.
using LinkUses = std::function<LinkUse(const ActionOnRank&)>;

/// By node of the graph.
struct ActionTimes {
  std::vector<Seconds> starts;
  std::vector<Seconds> ends;
};

/// Runs the graph, each node as soon as all that it waits for has ended and the links that it takes are free. `links`
/// may be empty: no link is shared then. Empty if the graph has a cycle.
std::optional<ActionTimes> action_times(const DependenceGraph& graph, const Prices& prices, const LinkUses& links = {});

/// What the times of one step come to.
struct StepTimes {
  Seconds step;                   ///< from the first start to the last end of any action
  Seconds exposed_optimizer;      ///< from the last end on a compute lane to the end of the step
  double bubble_makespan = 0;     ///< as in TimelineSummary (methods 2.3)
  double bubble_span = 0;         ///< likewise
  std::vector<Seconds> computes;  ///< busy seconds of the compute lane, by rank
};

StepTimes step_times(const DependenceGraph& graph, const ActionTimes& times);

}  // namespace penstock
