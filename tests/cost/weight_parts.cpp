// SPDX-License-Identifier: Apache-2.0
#include "schedule/weight_parts.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "cost/model_cost.hpp"
#include "cost/prices.hpp"
#include "cost/shapes.hpp"

namespace penstock {
namespace {

/// A schedule with one stage a rank, whose Ws have so many parts.
Schedule schedule_of(std::int32_t ranks, std::uint8_t parts) {
  Schedule schedule;
  schedule.shape.ranks = ranks;
  schedule.shape.stages = ranks;
  for (const Rank rank : all<Rank>(ranks)) schedule.rank_of.push_back(rank);
  schedule.weight_parts = PerStage<std::uint8_t>(ranks, parts);
  return schedule;
}

double weight_price(const CostModel& model, const Schedule& schedule, int stage, int slice, int part) {
  const Action action{Op::backward_weight, Stage{stage}, MicroBatch{0}, Slice{slice}, static_cast<std::uint8_t>(part)};
  return model.price(schedule, {Rank{stage}, action}).value;
}

CostShape sliced_llama() {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 4;
  return shape;
}

TEST(WeightPartPrices, AddUpToTheWholesForAnyNumberOfParts) {
  CostShape mixture = shape_of(preset_spec(ModelPreset::mixtral_8x7b), 4);
  CostShape shared = sliced_llama();
  shared.vocabulary_parallel = true;
  for (const CostShape& shape : {sliced_llama(), mixture, shared}) {
    HardwareOptions hardware = round_hardware();
    hardware.device.launch_latency = Seconds{1e-5};
    hardware.device.bandwidth = {1'000'000'000'000};
    for (const CostModel& model : {CostModel{shape, hardware}, CostModel{shape, unit_hardware()}}) {
      for (const int stage : {0, 3}) {
        for (const int parts : {2, 5, int{finest_weight_parts(model.weight_products(Stage{stage}))}}) {
          const Schedule schedule = schedule_of(4, static_cast<std::uint8_t>(parts));
          double sum = 0;
          for (int part = 1; part <= parts; ++part) sum += weight_price(model, schedule, stage, 0, part);

          const double whole = weight_price(model, schedule, stage, 0, 0);
          EXPECT_NEAR(sum, whole, whole * parts * 2.3e-16) << "stage " << stage << ", " << parts << " parts";
        }
      }
    }
  }
}

// Memory never counts on the round hardware, so that a W is its products, and each its FLOPs.
TEST(WeightPartPrices, OfSingleProductsAreTheirFlops) {
  const CostShape shape = sliced_llama();
  const CostModel model{shape, round_hardware()};
  const auto products = weight_gradient_products(shape, Stage{3});
  const Schedule schedule = schedule_of(4, finest_weight_parts(model.weight_products(Stage{3})));

  ASSERT_EQ(products.size(), 1U + 8 * 4);
  // The head first; then down, gate with up, attention output, and query with key and value, of one layer.
  EXPECT_EQ(products[0].flops().value, 2.0 * 1024 * 4096 * 32000);
  EXPECT_EQ(products[1].flops().value, 2.0 * 1024 * 4096 * 11008);
  EXPECT_EQ(products[2].flops().value, 2.0 * 1024 * 4096 * 22016);
  EXPECT_EQ(products[3].flops().value, 2.0 * 1024 * 4096 * 4096);
  EXPECT_EQ(products[4].flops().value, 2.0 * 1024 * 4096 * 12288);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const double seconds = products[i].flops().value / 0.5e15;
    // Elementwise work moves below 1 GB at 2^62 bytes a second.
    EXPECT_NEAR(weight_price(model, schedule, 3, 2, static_cast<int>(i) + 1), seconds, 1e9 / 4.6e18 + 1e-12 * seconds);
  }
}

TEST(FlopHardware, CountsTheFlopsOfProductsAndAttentionAlone) {
  const CostShape shape = sliced_llama();
  const CostModel model{shape, flop_hardware()};
  const Schedule schedule = schedule_of(4, 1);
  const auto price = [&](Op op, int slice) {
    return model.price(schedule, {Rank{1}, {op, Stage{1}, MicroBatch{0}, Slice{slice}}}).value;
  };
  // Eight layers; elementwise work moves a few GB at 2^63 bytes a second.
  const double products = 8e-12 * layer_work(shape, WorkPart::forward).flops().value;
  const double attention = 8e-12 * attention_work(shape, 2.5, WorkPart::forward, true).flops.value;
  const double tolerance = 1e10 / 9e18 + 1e-12 * products;

  EXPECT_NEAR(price(Op::forward, 2), products + attention, tolerance);
  EXPECT_NEAR(price(Op::backward_input, 2), products + 2.5 * attention, 2.5 * tolerance);
  EXPECT_NEAR(price(Op::backward_weight, 2), products, tolerance);
  EXPECT_NEAR(price(Op::send_forward, 2), 0, tolerance);
}

TEST(WeightPartPrices, OnUnitHardwareAreEqual) {
  const CostModel model{sliced_llama(), unit_hardware()};

  EXPECT_EQ(weight_price(model, schedule_of(4, 8), 1, 0, 3), 0.125);
  EXPECT_EQ(model.weight_products(Stage{1}), 8 * 4);
  EXPECT_EQ(model.weight_products(Stage{3}), 8 * 4 + 1);
}

TEST(WeightProducts, AreThoseOfTheStagesTotalWork) {
  for (const ModelPreset preset : {ModelPreset::llama2_7b, ModelPreset::mixtral_8x7b}) {
    const CostShape shape = shape_of(preset_spec(preset), 4);
    const double layer = layer_work(shape, WorkPart::weight_gradient).flops().value;
    const double head = head_work(shape, WorkPart::weight_gradient, 1).flops().value;
    for (const int stage : {1, 3}) {
      double sum = 0;
      for (const Product& product : weight_gradient_products(shape, Stage{stage})) sum += product.flops().value;

      const double expected = 8 * layer + (stage == 3 ? head : 0);
      EXPECT_NEAR(sum, expected, 1e-14 * expected);
    }
  }
}

}  // namespace
}  // namespace penstock
