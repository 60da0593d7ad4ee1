// SPDX-License-Identifier: Apache-2.0
#include "execute/weight_schedule.hpp"

#include <numeric>
#include <vector>

#include "memory/weight_memory.hpp"
#include "schedule/weight_parts.hpp"
#include "schedule/weight_placement.hpp"

namespace penstock {
namespace {

using ProductSizes = PerStage<std::vector<std::int64_t>>;

ProductSizes product_sizes(const PlannedSchedule& training) {
  ProductSizes sizes;
  for (const StageShape& stage : training.stages) sizes.push_back(StageMath{stage}.weight_product_sizes());
  return sizes;
}

/// Of the FLOPs of the whole W, those of one part.
double share_of_part(const Action& weight, std::int32_t parts, const std::vector<std::int64_t>& sizes) {
  const auto count = static_cast<std::int64_t>(sizes.size());
  const ProductRange range = products_of_part(weight.part, parts, count);
  const auto part = std::accumulate(sizes.begin() + range.begin, sizes.begin() + range.end, std::int64_t{0});
  return static_cast<double>(part) / static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
}

/// The durations of whole actions, divided among the parts of a W.
Prices with_parts(const Prices& whole, const ProductSizes& sizes, const Schedule& compute) {
  return [&whole, &sizes, &compute](const ActionOnRank& node) {
    if (node.action.part == 0) return whole(node);
    ActionOnRank of_all = node;
    of_all.action.part = 0;
    const double share =
        share_of_part(node.action, compute.parts_of_weight(node.action.stage), sizes[node.action.stage]);
    return Seconds{share * whole(of_all).value};
  };
}

}  // namespace

Schedule with_placed_weight_gradients(const RunPlan& plan, Schedule compute,
                                      const std::function<Schedule(const Schedule&)>& complete) {
  const ScheduleOptions& options = plan.shape.schedule;
  const ProductSizes sizes = product_sizes(plan.training);
  if (options.weight_grain == WeightGrain::product) {
    compute.weight_parts = {};
    for (const auto& of_stage : sizes) {
      compute.weight_parts.push_back(finest_weight_parts(static_cast<std::int64_t>(of_stage.size())));
    }
  }
  const bool is_queue = options.weight_queue == WeightQueue::dynamic;
  const WeightMemory memory{.complete = complete,
                            .bytes = plan.training.bytes,
                            .persistent = plan.persistent,
                            .capacity = plan.shape.device_capacity};
  Schedule placed = complete(place_weight_gradients(compute, memory, with_parts(plan.shape.durations, sizes, compute),
                                                    is_queue ? WeightOrder::latest : WeightOrder::shortest));
  placed.weights_run_early = is_queue;
  return placed;
}

}  // namespace penstock
