// SPDX-License-Identifier: Apache-2.0
#include "plan/modelled_run.hpp"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "config/hardware_file.hpp"
#include "cost/slimpipe_memory.hpp"
#include "model/parameters.hpp"
#include "model/presets.hpp"
#include "schedule/validator.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

/// A run of 48 small layers on unit hardware.
ModelledRun run_of(ScheduleKind kind, std::int32_t ranks, std::int32_t micro_batches) {
  ModelledRun run;
  run.cost.model.layers = 48;
  run.cost.sequence = 64;
  run.cost.pipeline = ranks;
  run.hardware = unit_hardware();
  run.schedule.kind = kind;
  run.micro_batches = micro_batches;
  return run;
}

ModelledRun sliced(ScheduleKind kind, std::int32_t virtual_stages, std::int32_t slices, std::int32_t micro_batches) {
  ModelledRun run = run_of(kind, 8, micro_batches);
  run.schedule.virtual_stages = virtual_stages;
  run.schedule.slices = slices;
  return run;
}

SimulatedStep step_of(const ModelledRun& run) {
  const Priced priced = price(run);
  return simulate(priced, plan_ranks(priced));
}

std::int32_t most_units(const SimulatedStep& step) {
  std::int32_t most = 0;
  for (const SimulatedRank& rank : step.ranks) most = std::max(most, rank.peak_units);
  return most;
}

std::string error_of(const ModelledRun& run) {
  try {
    price(run);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Closed forms: (p-1)/(v n m + p-1), sums of at most 10^3 whole seconds are exact in double precision, and the quotient
// is rounded once.
constexpr double rounding = 1e-15;

TEST(ModelledStep, OfSlimPipeHasItsPublishedBubbleAndUnits) {
  const auto step = step_of(sliced(ScheduleKind::slimpipe, 1, 8, 4));

  EXPECT_NEAR(step.times.bubble_makespan, 7.0 / (8 * 4 + 7), rounding);  // 17.95 %
  EXPECT_EQ(most_units(step), 22);                                       // n v + 2 (p-1)
}

TEST(ModelledStep, OfSvppKeepsFewerUnits) {
  const auto step = step_of(sliced(ScheduleKind::svpp, 1, 8, 4));

  EXPECT_NEAR(step.times.bubble_makespan, 7.0 / (8 * 4 + 7), rounding);
  EXPECT_EQ(most_units(step), 15);  // v max(p, n) + min(p, n) - 1
}

TEST(ModelledStep, OfTwoVirtualStagesHasItsPublishedBubbleAndUnits) {
  const auto slimpipe = step_of(sliced(ScheduleKind::slimpipe, 2, 8, 8));
  const auto svpp = step_of(sliced(ScheduleKind::svpp, 2, 8, 8));

  EXPECT_NEAR(slimpipe.times.bubble_makespan, 7.0 / (2 * 8 * 8 + 7), rounding);  // 5.19 %
  EXPECT_NEAR(svpp.times.bubble_makespan, 7.0 / (2 * 8 * 8 + 7), rounding);
  EXPECT_EQ(most_units(slimpipe), 30);
  EXPECT_EQ(most_units(svpp), 23);
}

TEST(ModelledStep, OfSPipeHasAThirdOfTheBubbleOfMobius) {
  ModelledRun spipe = run_of(ScheduleKind::spipe, 4, 8);
  spipe.schedule.forward_virtual = 2;
  spipe.schedule.backward_virtual = 6;
  ModelledRun mobius = run_of(ScheduleKind::mobius, 4, 8);
  mobius.schedule.virtual_stages = 2;

  EXPECT_NEAR(step_of(spipe).times.bubble_makespan, 3.0 / ((2 + 6) * 8 + 3), rounding);  // 4.48 %
  EXPECT_NEAR(step_of(mobius).times.bubble_makespan, 3.0 / (2 * 8 + 3), rounding);       // 15.79 %
}

TEST(ModelledStep, HoldsGradientsOfKeysAndValuesWhereSequencesAreCut) {
  constexpr auto kind = BufferKind::key_value_gradients;
  const auto sliced_run = price(sliced(ScheduleKind::svpp, 1, 8, 4));
  const auto whole_run = price(run_of(ScheduleKind::one_f_one_b, 8, 4));
  const ModelSpec& model = sliced_run.costs.shape().model;

  // dK and dV in fp32 of 8 tokens in each of the stage's 6 layers.
  EXPECT_EQ(sliced_run.costs.bytes()[Stage{0}][static_cast<std::size_t>(kind)].value,
            std::int64_t{2} * 4 * 8 * 6 * model.kv_heads * model.head_size);
  EXPECT_GT(most_live(sliced_run.schedule, Rank{0}, kind), 0);
  EXPECT_EQ(most_live(whole_run.schedule, Rank{0}, kind), 0);
}

TEST(ModelledStep, KeepsAsManyUnitsWhateverTheHardware) {
  for (const std::int32_t micro_batches : {1, 2, 5}) {
    const auto step = step_of(run_of(ScheduleKind::one_f_one_b, 4, micro_batches));

    EXPECT_EQ(most_units(step), std::min(micro_batches, 4));
    EXPECT_EQ(step.utilization, 0);
  }
}

/// Llama 7B in slices on a node of 8 with figures of an H100.
ModelledRun sliced_llama(ScheduleKind kind) {
  ModelledRun run = sliced(kind, 2, 8, 4);
  run.cost.model = preset_spec(ModelPreset::llama2_7b);
  run.cost.sequence = 16384;
  run.cost.optimizer = Place::device;
  run.hardware = read_hardware(std::string{HARDWARE_FOLDER} + "/h100.yaml");
  return run;
}

Bytes most_device_bytes(const Priced& priced) {
  Bytes most;
  for (const Rank rank : all<Rank>(priced.schedule.shape.ranks)) {
    const auto persistent = lay_out_persistent({&priced.schedule}, rank, {priced.costs.bytes()});
    most = std::max(most, most_live_bytes(priced.schedule, rank, priced.costs.bytes(), persistent));
  }
  return most;
}

// Messages are placed by when actions start; a reload, which waits for nothing but its offload, keeps its place.
TEST(ModelledStep, WithOffloadedActivationsKeepsFewOnTheDevice) {
  ModelledRun run = sliced_llama(ScheduleKind::slimpipe);
  run.cost.offload_ratio = 1;

  const Priced priced = price(run);

  // The one that computes, one on its way out, and one on its way in.
  for (const Rank rank : all<Rank>(8)) EXPECT_LE(most_live(priced.schedule, rank, BufferKind::offloadable), 3);
}

TEST(PlacedWeightGradients, ShortenTheStepAndLeaveAValidSchedule) {
  ModelledRun run = sliced_llama(ScheduleKind::svpp);
  const Seconds whole = step_of(run).times.step;

  run.schedule.weight_gradients = WeightGradients::placed;
  const Priced placed = price(run);

  EXPECT_TRUE(validate(placed.schedule).empty());
  EXPECT_LT(simulate(placed, plan_ranks(placed)).times.step, whole);
}

TEST(PlacedWeightGradients, WaitOnlyAsFarAsMemoryAllows) {
  ModelledRun run = sliced_llama(ScheduleKind::svpp);
  run.schedule.weight_gradients = WeightGradients::split;
  const Bytes least = most_device_bytes(price(run));
  run.schedule.weight_gradients = WeightGradients::placed;
  const Bytes unbounded = most_device_bytes(price(run));
  ASSERT_GT(unbounded, least);

  for (const std::int64_t part : {1, 2, 3}) {
    run.capacity = least + Bytes{(unbounded - least).value * part / 4};

    EXPECT_LE(most_device_bytes(price(run)), *run.capacity);
  }
}

TEST(PlacedWeightGradients, OfSingleProductsAreValidAndFillMoreWaits) {
  ModelledRun run = sliced_llama(ScheduleKind::svpp);
  run.schedule.weight_gradients = WeightGradients::placed;
  const SimulatedStep whole = step_of(run);
  run.schedule.weight_grain = WeightGrain::product;

  const Priced placed = price(run);

  EXPECT_TRUE(validate(placed.schedule).empty());
  EXPECT_EQ(placed.schedule.parts_of_weight(Stage{0}), placed.costs.weight_products(Stage{0}));
  const SimulatedStep products = simulate(placed, plan_ranks(placed));
  RecordProperty("whole", std::to_string(whole.times.step.value));
  RecordProperty("products", std::to_string(products.times.step.value));
  EXPECT_LT(products.times.step, whole.times.step);
}

TEST(PlacedWeightGradients, OfSingleProductsWaitOnlyAsFarAsMemoryAllows) {
  ModelledRun run = sliced_llama(ScheduleKind::svpp);
  run.schedule.weight_gradients = WeightGradients::split;
  const Bytes least = most_device_bytes(price(run));
  run.schedule.weight_gradients = WeightGradients::placed;
  run.schedule.weight_grain = WeightGrain::product;
  const Bytes unbounded = most_device_bytes(price(run));
  ASSERT_GT(unbounded, least);

  run.capacity = least + Bytes{(unbounded - least).value / 2};

  EXPECT_LE(most_device_bytes(price(run)), *run.capacity);
}

TEST(PlacedWeightGradients, FillWaitsWhileStagesComeFromTheHost) {
  ModelledRun run = sliced_llama(ScheduleKind::svpp);
  run.stream_parameters = true;
  run.resident_stages = 1;
  const Seconds whole = step_of(run).times.step;

  run.schedule.weight_gradients = WeightGradients::placed;
  const Priced placed = price(run);

  EXPECT_TRUE(validate(placed.schedule).empty());
  EXPECT_LT(simulate(placed, plan_ranks(placed)).times.step, whole);
}

TEST(PlacedWeightGradients, AreRefusedWhereTheyAreNotTheirOwnMasters) {
  ModelledRun filled = run_of(ScheduleKind::zb_h1, 4, 8);
  filled.schedule.weight_gradients = WeightGradients::placed;
  ModelledRun offloading = sliced(ScheduleKind::svpp, 1, 8, 4);
  offloading.schedule.weight_gradients = WeightGradients::placed;
  offloading.cost.offload_ratio = 0.5;

  EXPECT_THAT(error_of(filled), HasSubstr("zb_h1 has a place for them"));
  EXPECT_THAT(error_of(offloading), HasSubstr("fetch its activations from the host again"));
}

// Two nodes of 8: with 4 ranks of 2 devices a node holds a whole pipeline, or two ranks of both replicas.
TEST(HostBytes, AreThoseOfTheDevicesOfANode) {
  ModelledRun run = sliced_llama(ScheduleKind::one_f_one_b);
  run.cost.pipeline = 4;
  run.cost.tensor = 2;
  run.cost.data = 2;
  run.schedule.virtual_stages = 1;
  run.schedule.slices = 1;
  run.cost.optimizer = Place::host;
  const double parameters = static_cast<double>(parameter_count(run.cost.model));

  // Gradients of each device, and half of the masters and moments: the other replica has the other half.
  EXPECT_NEAR(static_cast<double>(most_host_bytes(price(run)).value), parameters * (4 + 6), 1e3);
  run.cost.neighbours = Neighbours::replicas;
  // Both replicas of two of the four ranks; the first or the last stage has the larger share by its vocabulary.
  const double ends = 2.0 * 32000 * 4096;
  EXPECT_NEAR(static_cast<double>(most_host_bytes(price(run)).value), parameters * (4 + 6), 10 * ends);
  run.cost.optimizer = Place::device;
  EXPECT_EQ(most_host_bytes(price(run)), Bytes{0});
}

TEST(HostBytes, CountWhatIsOffloadedAtOnce) {
  ModelledRun run = sliced_llama(ScheduleKind::slimpipe);
  run.cost.offload_ratio = 1;
  const double activations = slimpipe_activation_bytes(price(run).costs.shape(), 2, Recompute::none);

  // Of rank r n v + 2 (7 - r) units are in flight; the sum over the ranks is 8 n v + 56. Few of them are on the device.
  const double of_ranks = activations / (8 * 2 + 14) * (8 * 16 + 56);
  const auto most = static_cast<double>(most_host_bytes(price(run)).value);
  EXPECT_LT(most, of_ranks);
  EXPECT_GT(most, 0.8 * of_ranks);
}

TEST(ModelledRunFaults, NameSlicesThatAreNoMultipleOfTheRanks) {
  EXPECT_THAT(error_of(sliced(ScheduleKind::slimpipe, 1, 4, 4)), HasSubstr("4 slices cannot be dealt evenly to"));
}

TEST(ModelledRunFaults, NameAFileForOtherRanks) {
  ModelledRun run = run_of(ScheduleKind::one_f_one_b, 2, 1);
  run.schedule.file = "one_rank.csv";
  run.schedule_csv = "0F0,0B0\n";

  EXPECT_THAT(error_of(run), HasSubstr("schedule one_rank.csv is for 1 rank and 1 micro-batch"));
}

TEST(ModelledRunFaults, NameListedStagesThatTheScheduleHasNot) {
  ModelledRun run = run_of(ScheduleKind::one_f_one_b, 2, 1);
  run.layers_per_stage = {12, 12, 24};

  EXPECT_THAT(error_of(run), HasSubstr("lists 3 stages, but the schedule has 2"));
}

}  // namespace
}  // namespace penstock
