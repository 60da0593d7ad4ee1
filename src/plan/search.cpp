// SPDX-License-Identifier: Apache-2.0
#include "plan/search.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "memory/plan.hpp"
#include "plan/bounds.hpp"
#include "schedule/graph.hpp"
#include "simulate/times.hpp"

namespace penstock {
namespace {

Bytes live_peak(const Priced& priced) {
  Bytes most;
  for (const Rank rank : all<Rank>(priced.schedule.shape.ranks)) {
    const auto persistent = lay_out_persistent({&priced.schedule}, rank, {priced.costs.bytes()});
    most = std::max(most, most_live_bytes(priced.schedule, rank, priced.costs.bytes(), persistent));
  }
  return most;
}

PlannedLayout simulated(const ModelledRun& run, const Priced& priced, Bytes peak) {
  const ScheduleIndex index{priced.schedule};
  const DependenceGraph graph{index};
  const auto times = action_times(graph, priced.prices(), priced.link_uses());
  require(times.has_value(), "schedule '{}' of a candidate has a cycle", priced.schedule.name);
  const StepTimes step = step_times(graph, *times);
  PlannedLayout layout{run,
                       step.step,
                       *std::max_element(step.computes.begin(), step.computes.end()),
                       step.exposed_optimizer,
                       step.bubble_makespan,
                       0,
                       peak};
  layout.utilization = utilization_of(priced, step.step);
  return layout;
}

/// Whether host memory can be what does not fit. Unit hardware has none that ends.
bool needs_host(const ModelledRun& run) {
  return !run.hardware.unit && (run.cost.offload_ratio > 0 || run.cost.optimizer == Place::host);
}

bool fits_host(const ModelledRun& run, const Priced& priced) {
  return !needs_host(run) || most_host_bytes(priced) <= run.hardware.node.host_memory;
}

/// The search itself.
class Search {
 public:
  Search(const PlanRequest& request, std::size_t rows, Pruning pruning, const SearchObserver& observer)
      : request_{request}, rows_{rows}, pruning_{pruning}, observer_{observer} {}

  PlanResult run() {
    auto runs = candidates(request_);
    result_.counts.candidates = static_cast<std::int64_t>(runs.size());
    for (const std::size_t i : in_order(runs)) {
      consider(runs[i], bounds_.empty() ? Seconds{0} : bounds_[i].step);
      if (observer_) observer_(result_);
    }
    return std::move(result_);
  }

 private:
  /// The candidates whose closed form fits, by their shortest possible step.
  std::vector<std::size_t> in_order(const std::vector<ModelledRun>& runs) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (pruning_ == Pruning::by_bounds) bounds_.push_back(least_cost(runs[i]));
      if (pruning_ == Pruning::by_bounds && bounds_[i].device > request_.capacity) {
        ++result_.counts.over_memory_bound;
        keep_closest(runs[i], bounds_[i].device);
      } else {
        order.push_back(i);
      }
    }
    if (pruning_ == Pruning::by_bounds) {
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return bounds_[a].step < bounds_[b].step; });
    }
    return order;
  }

  void consider(const ModelledRun& run, Seconds least_step) {
    auto& best = result_.best;
    if (best.size() == rows_ && least_step > best.back().step) {
      ++result_.counts.over_time_bound;
      return;
    }
    const Priced priced = price(run);
    const Bytes peak = live_peak(priced);
    if (peak > request_.capacity) {
      ++result_.counts.over_memory;
      return keep_closest(run, peak);
    }
    if (!fits_host(run, priced)) {
      ++result_.counts.over_host_memory;
      return;
    }
    PlannedLayout layout = simulated(run, priced, peak);
    if (best.size() == rows_ && layout.step >= best.back().step) {
      ++result_.counts.simulated;
      return;
    }
    layout.peak_device = most_planned_bytes(priced);
    if (layout.peak_device > request_.capacity) {
      ++result_.counts.over_memory;
      return keep_closest(run, layout.peak_device);
    }
    ++result_.counts.simulated;
    const auto place = std::upper_bound(best.begin(), best.end(), layout,
                                        [](const auto& a, const auto& b) { return a.step < b.step; });
    best.insert(place, layout);
    if (best.size() > rows_) best.pop_back();
    result_.closest.reset();
  }

  void keep_closest(const ModelledRun& run, Bytes peak) {
    auto& closest = result_.closest;
    if (!result_.best.empty() || (closest && closest->peak_device <= peak)) return;
    closest = PlannedLayout{};
    closest->run = run;
    closest->peak_device = peak;
  }

  const PlanRequest& request_;
  std::size_t rows_;
  Pruning pruning_;
  const SearchObserver& observer_;
  std::vector<LeastCost> bounds_;
  PlanResult result_;
};

/// Whether any candidate fits: no simulation.
bool fits(const PlanRequest& request) {
  const auto runs = candidates(request);
  return std::any_of(runs.begin(), runs.end(), [&](const ModelledRun& run) {
    if (least_cost(run).device > request.capacity) return false;
    const Priced priced = price(run);
    return live_peak(priced) <= request.capacity && fits_host(run, priced);
  });
}

}  // namespace

PlanResult search(const PlanRequest& request, std::int32_t rows, Pruning pruning, const SearchObserver& observer) {
  return Search{request, static_cast<std::size_t>(rows), pruning, observer}.run();
}

std::string what_would_fit(const PlanRequest& request) {
  PlanRequest changed = request;
  std::string changes;
  const auto fits_with = [&](const std::string& change) {
    changes += (changes.empty() ? "" : ", ") + change;
    return fits(changed);
  };
  changed.search.recompute = {Recompute::full};
  if (fits_with("memory.recompute: full")) return changes;
  changed.search.recompute = {Recompute::none};
  changed.search.offload_activations = {1.0};
  changes.clear();
  if (fits_with("memory.offload_activations: 1")) return changes;
  changed.base.stream_parameters = true;
  if (fits_with("memory.parameters: host")) return changes;
  changed = request;
  for (const std::int32_t factor : {2, 4, 8, 16}) {
    changes.clear();
    changed.devices = request.devices * factor;
    if (fits_with(fmt::format("plan.devices: {}", changed.devices))) return changes;
  }
  return {};
}

}  // namespace penstock
