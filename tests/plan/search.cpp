// SPDX-License-Identifier: Apache-2.0
#include "plan/search.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/hardware_file.hpp"
#include "model/presets.hpp"
#include "plan/bounds.hpp"
#include "plan/candidates.hpp"
#include "schedule/kinds.hpp"
#include "schedule/validator.hpp"
#include "simulate/times.hpp"

namespace penstock {
namespace {

using ::testing::HasSubstr;

HardwareOptions hardware(const std::string& name) {
  return read_hardware(std::string{HARDWARE_FOLDER} + "/" + name + ".yaml");
}

/// Llama 7B with short sequences on a node of 8.
PlanRequest small_request() {
  PlanRequest request;
  request.base.cost.model = preset_spec(ModelPreset::llama2_7b);
  request.base.cost.model.layers = 16;
  request.base.cost.sequence = 2048;
  request.base.hardware = hardware("h100");
  request.global_batch = 16;
  request.devices = 8;
  request.capacity = Bytes{std::int64_t{40} << 30};
  request.search.tensor = {1, 2, 4};
  request.search.slices = {1, 4, 8};
  request.search.virtual_stages = {1, 2};
  request.search.recompute = {Recompute::none, Recompute::full};
  return request;
}

/// What identifies a layout.
std::string text_of(const ModelledRun& run) {
  const ScheduleOptions& schedule = run.schedule;
  return fmt::format("{} p{} t{} c{} d{} b{} v{} n{} f{} b{} recompute {} offload {}", deck_name(schedule.kind),
                     run.cost.pipeline, run.cost.tensor, run.cost.context, run.cost.data, run.cost.micro_batch,
                     schedule.virtual_stages, schedule.slices, schedule.forward_virtual, schedule.backward_virtual,
                     deck_name(run.recompute), run.cost.offload_ratio);
}

TEST(Candidates, AreAllTakenByTheirGeneratorsAndDifferFromEachOther) {
  const auto runs = candidates(small_request());
  std::vector<std::string> texts;

  for (const ModelledRun& run : runs) {
    EXPECT_NO_THROW(price(run)) << text_of(run);
    texts.push_back(text_of(run));
  }

  EXPECT_GE(runs.size(), 500U);
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
}

TEST(Candidates, HoldEveryKind) {
  const auto runs = candidates(small_request());

  for (const KindEntry& entry : kind_table()) {
    const bool stands_for_another = entry.kind == ScheduleKind::breadth_first && runs.empty();
    const bool found =
        std::any_of(runs.begin(), runs.end(), [&](const ModelledRun& run) { return run.schedule.kind == entry.kind; });
    EXPECT_TRUE(found || stands_for_another) << deck_name(entry.kind);
  }
}

TEST(Candidates, AskForNothingThatHasNoEffect) {
  PlanRequest request = small_request();
  request.base.schedule.early_recompute = true;
  request.base.schedule.weight_grain = WeightGrain::product;
  request.search.weight_gradients = {WeightGradients::whole, WeightGradients::placed};
  request.search.offload_activations = {0, 1};

  std::int32_t placed = 0;
  for (const ModelledRun& run : candidates(request)) {
    const bool is_placed = run.schedule.weight_gradients == WeightGradients::placed;
    const bool streams = entry_of(run.schedule.kind).limits.streams_parameters;
    placed += is_placed ? 1 : 0;
    EXPECT_EQ(run.schedule.weight_grain, is_placed ? WeightGrain::product : WeightGrain::whole) << text_of(run);
    EXPECT_EQ(run.schedule.early_recompute, streams) << text_of(run);
    const bool has_time_to_leave = run.recompute != Recompute::full || run.schedule.slices > 1;
    EXPECT_TRUE(run.cost.offload_ratio == 0 || has_time_to_leave) << text_of(run);
  }
  EXPECT_GT(placed, 0);
}

TEST(LeastCost, IsNeverMoreThanWhatIsSimulated) {
  for (const ModelledRun& run : candidates(small_request())) {
    const LeastCost least = least_cost(run);

    const Priced priced = price(run);
    const ScheduleIndex index{priced.schedule};
    const DependenceGraph graph{index};
    const Seconds step = step_times(graph, *action_times(graph, priced.prices(), priced.link_uses())).step;
    Bytes peak;
    for (const Rank rank : all<Rank>(priced.schedule.shape.ranks)) {
      const auto persistent = lay_out_persistent({&priced.schedule}, rank, {priced.costs.bytes()});
      peak = std::max(peak, most_live_bytes(priced.schedule, rank, priced.costs.bytes(), persistent));
    }
    // Sums of the same prices in another order.
    EXPECT_LE(least.step.value, step.value * (1 + 1e-9)) << text_of(run);
    EXPECT_LE(least.device, peak) << text_of(run);
  }
}

TEST(LeastActivationUnits, AreThoseOfTheSchedules) {
  for (const ModelledRun& run : candidates(small_request())) {
    if (run.recompute == Recompute::full) continue;
    const Schedule schedule = price(run).schedule;
    for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
      EXPECT_LE(least_activation_units(run.schedule, run.cost.pipeline, run.micro_batches, rank),
                most_live(schedule, rank, BufferKind::activations))
          << text_of(run) << " rank " << rank.value();
    }
  }
}

TEST(Search, FindsTheSameBestWithAndWithoutBounds) {
  const PlanRequest request = small_request();

  const PlanResult pruned = search(request, 5);
  const PlanResult whole = search(request, 5, Pruning::none);

  ASSERT_EQ(pruned.best.size(), 5U);
  ASSERT_EQ(whole.best.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(pruned.best[i].step, whole.best[i].step);
  }
  EXPECT_EQ(text_of(pruned.best[0].run), text_of(whole.best[0].run));
  EXPECT_LT(pruned.counts.simulated, whole.counts.simulated / 2);
  EXPECT_EQ(whole.counts.simulated + whole.counts.over_memory, whole.counts.candidates);
}

TEST(Search, ShowsEachCandidateThatItDecidesAndTheBestSoFar) {
  const PlanRequest request = small_request();
  std::vector<std::int64_t> decided;
  std::vector<double> best;

  const PlanResult result = search(request, 5, Pruning::by_bounds, [&](const PlanResult& so_far) {
    decided.push_back(so_far.counts.decided());
    if (!so_far.best.empty()) best.push_back(so_far.best.front().step.value);
  });

  // Those whose closed form does not fit are decided before the first is shown.
  std::vector<std::int64_t> expected(
      static_cast<std::size_t>(result.counts.candidates - result.counts.over_memory_bound));
  std::iota(expected.begin(), expected.end(), result.counts.over_memory_bound + 1);
  EXPECT_EQ(decided, expected);
  EXPECT_TRUE(std::is_sorted(best.rbegin(), best.rend()));
  EXPECT_EQ(best.back(), result.best.front().step.value);
}

TEST(Search, SaysWhatIsClosestAndWhatWouldFitWhereNothingDoes) {
  PlanRequest request = small_request();
  request.search.recompute = {Recompute::none};
  request.search.kinds = {ScheduleKind::one_f_one_b, ScheduleKind::slimpipe};
  request.capacity = Bytes{std::int64_t{2} << 30};

  const PlanResult result = search(request, 3);

  EXPECT_TRUE(result.best.empty());
  ASSERT_TRUE(result.closest.has_value());
  EXPECT_GT(result.closest->peak_device, request.capacity);
  EXPECT_THAT(what_would_fit(request), HasSubstr("plan.devices: "));
}

}  // namespace
}  // namespace penstock
