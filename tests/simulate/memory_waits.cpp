// SPDX-License-Identifier: Apache-2.0
//
// What the waits for planned memory cost: a plan that reuses memory too eagerly makes computations wait for messages.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "memory/plan.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "simulate/simulate.hpp"

namespace penstock {
namespace {

/// Stages that keep thirty times what they pass on, as a few layers do.
std::vector<RankPlan> plans_of(const Schedule& schedule) {
  StageBytes bytes;
  bytes.fill(Bytes{1 << 10});
  bytes[static_cast<std::size_t>(BufferKind::activations)] = Bytes{30 << 10};
  const PerStage<StageBytes> all_stages(schedule.most_stages(), bytes);
  std::vector<RankPlan> plans;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    plans.push_back(plan_rank(schedule, rank, all_stages, lay_out_persistent({&schedule}, rank, {all_stages})));
  }
  return plans;
}

Seconds step_in_memory(const Schedule& schedule, const Prices& prices, const std::vector<RankPlan>& plans) {
  StepTimes times;
  simulate(schedule, prices, plans, {}, &times);
  return times.step;
}

/// Messages of a third of a forward; later slices last longer, as attention makes them.
Seconds uneven_price(const Schedule& schedule, const ActionOnRank& node) {
  if (lane_of(node.action.op) == Lane::send) return Seconds{0.3};
  const double slices = schedule.shape.slices;
  const double growth = 0.8 + 0.4 * (node.action.slice.value() + 0.5) / slices;
  return Seconds{growth * unit_duration(schedule, node.action).value};
}

class MemoryWaits : public testing::TestWithParam<const char*> {};

TEST_P(MemoryWaits, CostLittleBesideMessagesThatAreShort) {
  for (const std::int32_t p : {2, 4, 8}) {
    GeneratorOptions options{.pipeline = p, .micro_batches = 2 * p};
    const std::string kind = GetParam();
    const bool is_v = kind == "zb_v" || kind == "v_half" || kind == "dualpipe_v" || kind == "hanayo";
    if (kind == "interleaved" || kind == "svpp" || kind == "slimpipe" || kind == "mobius" || is_v) {
      options.virtual_stages = 2;
    }
    if (kind == "seq1f1b" || kind == "svpp" || kind == "slimpipe") options.slices = p;
    if (kind == "spipe") options.backward_virtual = 3;
    const Schedule schedule = complete(generate(kind, options), {});
    const Prices prices = [&](const ActionOnRank& node) { return uneven_price(schedule, node); };

    const Seconds without = step_in_memory(schedule, prices, {});
    const Seconds with = step_in_memory(schedule, prices, plans_of(schedule));

    EXPECT_LE(with.value, 1.03 * without.value) << kind << " p=" << p;
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, MemoryWaits,
                         testing::Values("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "v_half", "dualpipe_v",
                                         "hanayo", "seq1f1b", "svpp", "slimpipe", "mobius", "spipe"));

}  // namespace
}  // namespace penstock
