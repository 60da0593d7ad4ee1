// SPDX-License-Identifier: Apache-2.0
#include "cost/model_cost.hpp"

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cost/shapes.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr std::array<WorkPart, 3> all_parts{WorkPart::forward, WorkPart::input_gradient, WorkPart::weight_gradient};

/// FLOPs of a whole sequence on one device, without attention.
double product_flops(const CostShape& shape) {
  double sum = 0;
  for (const WorkPart part : all_parts) {
    sum += shape.model.layers * layer_work(shape, part).flops().value + head_work(shape, part, 1).flops().value;
  }
  return sum * shape.slices;
}

double attention_flops(const CostShape& shape, WorkPart part) {
  double sum = 0;
  for (int slice = 0; slice < shape.slices; ++slice) {
    sum += attention_work(shape, slice + 0.5, part, true).flops.value;
  }
  return sum * shape.model.layers;
}

class ModelFlops : public testing::TestWithParam<ModelPreset> {};

// 6 FLOPs for each parameter in a product, and causal attention counted as forward and twice that backward.
TEST_P(ModelFlops, OfAllPartsAreThoseOfATrainedToken) {
  CostShape shape = shape_of(preset_spec(GetParam()), 1);
  shape.slices = 8;

  const double flops = product_flops(shape) + 3 * attention_flops(shape, WorkPart::forward);

  const double expected = training_flops_per_token(shape.model, shape.sequence) * shape.sequence;
  EXPECT_NEAR(flops / expected, 1, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Presets, ModelFlops,
                         testing::Values(ModelPreset::gpt2_124m, ModelPreset::llama2_7b, ModelPreset::llama2_70b,
                                         ModelPreset::mixtral_8x7b, ModelPreset::spipe_19b));

TEST(LayerWork, IsDividedByTensorAndContext) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_70b), 1);
  const Flops whole = layer_work(shape, WorkPart::forward).flops();
  const double traffic = layer_work(shape, WorkPart::forward).traffic;

  shape.tensor = 4;
  shape.context = 2;

  EXPECT_DOUBLE_EQ(layer_work(shape, WorkPart::forward).flops().value, whole.value / 8);
  EXPECT_DOUBLE_EQ(layer_work(shape, WorkPart::forward).traffic, traffic / 8);
}

TEST(LayerWork, OfExpertsIsTheSameHoweverTheyAreShared) {
  CostShape shape = shape_of(preset_spec(ModelPreset::mixtral_8x7b), 1);
  shape.data = 8;
  const Flops whole = layer_work(shape, WorkPart::weight_gradient).flops();

  shape.expert = 8;

  EXPECT_DOUBLE_EQ(layer_work(shape, WorkPart::weight_gradient).flops().value, whole.value);
}

TEST(LayerWork, OfASmallLayerIsTheSumOfItsProducts) {
  CostShape shape = shape_of(small_llama(), 1);
  shape.sequence = 16;
  shape.slices = 4;

  const Flops flops = layer_work(shape, WorkPart::forward).flops();

  EXPECT_EQ(flops.value, 2.0 * 4 * (8 * (8 + 4 + 4) + 8 * 8 + 3 * 8 * 10));  // 4 tokens; query, key, value; output; ffn
}

TEST(Attention, GrowsWithTheSliceAndIsTwoAndAHalfTimesAsMuchBackward) {
  CostShape shape = shape_of(small_llama(), 1);
  shape.sequence = 16;
  shape.slices = 4;
  shape.micro_batch = 3;

  const AttentionWork forward = attention_work(shape, 2.5, WorkPart::forward, true);
  const AttentionWork backward = attention_work(shape, 2.5, WorkPart::input_gradient, true);

  EXPECT_DOUBLE_EQ(forward.flops.value, 3 * 4.0 * 8 * 4 * 4 * 2.5);  // sequences, 4 query_width (S/n)^2 (k + 1/2)
  EXPECT_DOUBLE_EQ(backward.flops.value, 2.5 * forward.flops.value);
  EXPECT_EQ(forward.traffic, 0);
  EXPECT_EQ(attention_work(shape, 2.5, WorkPart::weight_gradient, true).flops.value, 0);
}

TEST(Attention, WithoutAFusedKernelMovesScoresAndDoesNotStopAtTheDiagonal) {
  CostShape shape = shape_of(small_llama(), 1);
  shape.sequence = 16;
  shape.slices = 4;

  const AttentionWork forward = attention_work(shape, 2.5, WorkPart::forward, false);
  const AttentionWork backward = attention_work(shape, 2.5, WorkPart::input_gradient, false);

  EXPECT_DOUBLE_EQ(forward.flops.value, 4.0 * 8 * 4 * 12);  // 12 keys
  EXPECT_DOUBLE_EQ(forward.traffic, 4.0 * 2 * 2 * 4 * 12);  // four moves of 2 bytes, 2 heads
  EXPECT_DOUBLE_EQ(backward.flops.value, 2 * forward.flops.value);
  EXPECT_DOUBLE_EQ(backward.traffic, forward.traffic * 7 / 4);
}

TEST(Utilization, IsOneAtThePeakOfAllDevices) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.tensor = 2;
  shape.data = 3;
  const double flops = model_flops(shape, 5).value;

  const double utilization = model_flops_utilization(shape, 5, Seconds{flops / (24 * 1e15)}, 1e15);

  EXPECT_DOUBLE_EQ(flops, training_flops_per_token(shape.model, 4096) * 4096 * 5 * 3);
  EXPECT_DOUBLE_EQ(utilization, 1);
}

std::string fault_of(const CostShape& shape) {
  try {
    check(shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return {};
}

TEST(CheckShape, NamesTheRuleWithItsNumbers) {
  const CostShape good = shape_of(preset_spec(ModelPreset::mixtral_8x7b), 4);
  const auto with = [&](auto change) {
    CostShape shape = good;
    change(shape);
    return fault_of(shape);
  };

  EXPECT_EQ(fault_of(good), "");
  EXPECT_THAT(with([](CostShape& s) { s.tensor = 3; }),
              HasSubstr("parallel.tensor 3 does not divide the 32 attention"));
  EXPECT_THAT(with([](CostShape& s) { s.slices = 8192; }), HasSubstr("8192 slices x parallel.context 1 are more than"));
  EXPECT_THAT(with([](CostShape& s) { s.expert = 3; }), HasSubstr("parallel.expert 3 does not divide the 8 experts"));
  EXPECT_THAT(with([](CostShape& s) { s.expert = 2; }),
              HasSubstr("parallel.expert 2 does not divide parallel.context 1"));
  EXPECT_THAT(with([](CostShape& s) { s.context = 0; }), HasSubstr("parallel.context is 0; it must be at least 1"));
  EXPECT_THAT(with([](CostShape& s) { s.offload_ratio = 1.5; }),
              HasSubstr("to offload is 1.5; it must be from 0 to 1"));
  EXPECT_THAT(with([](CostShape& s) {
                s.exchange = Exchange::pairwise;
                s.slices = 6;
              }),
              HasSubstr("6 slices are no multiple of parallel.pipeline 4"));
}

TEST(CheckShape, RefusesExpertParallelismOfADenseModel) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.expert = 2;
  shape.data = 2;

  EXPECT_THAT(fault_of(shape), HasSubstr("parallel.expert is 2, but the model has no experts"));
}

}  // namespace
}  // namespace penstock
