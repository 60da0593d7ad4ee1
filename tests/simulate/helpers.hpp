// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the simulator measure of a schedule's computation, and how exactly.
#pragma once

#include "base/units.hpp"
#include "schedule/graph.hpp"
#include "schedule/passes.hpp"
#include "simulate/simulate.hpp"
#include "trace/summary.hpp"

namespace penstock {

/// The bubble by makespan of compute actions of stages of one phase, in unit prices.
inline double bubble(const Schedule& compute) {
  return summarize(simulate(complete(compute, {}), unit_prices())).bubble_makespan;
}

/// Of a bubble: sums of a few thousand units of 1 and 2 are exact; the ratio of two of them is rounded once, and
/// subtracted from 1.
inline constexpr double bubble_rounding = 4 * 2.3e-16;

/// How long a step of compute actions lasts.
inline Seconds step_of(const Schedule& compute, const Prices& durations) {
  return summarize(simulate(complete(compute, {}), durations)).step_time;
}

/// Of a step [s]: sums of at most a thousand lengths of at most 10, in two orders.
inline constexpr double step_rounding = 1000 * 1000 * 10 * 2.3e-16;

}  // namespace penstock
