// SPDX-License-Identifier: Apache-2.0
//
// The rows of SlimPipe's published planner files, to the digit that they print.
#include "cost/slimpipe_memory.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cost/shapes.hpp"
#include "cost/stage_sizes.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

struct Row {
  ModelPreset model;
  std::int32_t thousand_tokens;  ///< x 1024
  std::int32_t tensor;
  std::int32_t context;
  std::int32_t pipeline;
  std::int32_t slices;
  std::int32_t virtual_stages;
  const char* activations;  ///< GiB
};

CostShape shape_of(const Row& row) {
  CostShape shape;
  shape.model = preset_spec(row.model);
  shape.sequence = row.thousand_tokens * 1024;
  shape.tensor = row.tensor;
  shape.context = row.context;
  shape.pipeline = row.pipeline;
  shape.slices = row.slices;
  return shape;
}

class SlimPipeRow : public testing::TestWithParam<Row> {};

TEST_P(SlimPipeRow, HasThePrintedActivations) {
  const Row& row = GetParam();

  const double bytes = slimpipe_activation_bytes(shape_of(row), row.virtual_stages, Recompute::none);

  EXPECT_EQ(fmt::format("{:.2f}", bytes / gib), row.activations);
}

INSTANTIATE_TEST_SUITE_P(Published, SlimPipeRow,
                         testing::Values(Row{ModelPreset::slimpipe_13b, 256, 8, 2, 8, 16, 5, "14.78"},
                                         Row{ModelPreset::slimpipe_70b, 64, 4, 1, 8, 8, 10, "49.20"},
                                         Row{ModelPreset::slimpipe_149b, 256, 4, 2, 32, 32, 3, "52.46"},
                                         Row{ModelPreset::slimpipe_8x22b, 64, 8, 1, 8, 8, 7, "18.32"},
                                         Row{ModelPreset::slimpipe_8x7b, 64, 1, 4, 8, 8, 4, "19.77"}));

TEST(SlimPipeLogits, HaveThePrintedSize) {
  const Row row{ModelPreset::slimpipe_13b, 256, 8, 2, 8, 16, 5, ""};

  EXPECT_EQ(fmt::format("{:.2f}", slimpipe_logits_bytes(shape_of(row)) / gib), "0.98");
}

// [(p-1) + p (v+1) (n/p - 1) / 2] / n x 8 h S / (t c) with p = 8, v = 5, worked out for n/p = 1, 2 and 4.
TEST(SlimPipeKvGradients, FollowTheFormulaForOneTwoAndFourGroups) {
  Row row{ModelPreset::slimpipe_13b, 256, 8, 2, 8, 8, 5, ""};
  const double whole = 8.0 * 5120 * 256 * 1024 / 16;

  EXPECT_DOUBLE_EQ(slimpipe_kv_gradient_bytes(shape_of(row), 5), whole * 7 / 8);
  row.slices = 16;
  EXPECT_DOUBLE_EQ(slimpipe_kv_gradient_bytes(shape_of(row), 5), whole * 31 / 16);
  row.slices = 32;
  EXPECT_DOUBLE_EQ(slimpipe_kv_gradient_bytes(shape_of(row), 5), whole * 79 / 32);
}

TEST(SlimPipeWeights, AreSixBytesAParameterAndTwelveForTheOptimizer) {
  CostShape shape = shape_of({ModelPreset::slimpipe_13b, 256, 8, 2, 8, 16, 5, ""});
  shape.data = 4;
  const auto parameters = static_cast<double>(parameter_count(shape.model));

  EXPECT_DOUBLE_EQ(slimpipe_weight_bytes(shape), 6 * parameters / (8 * 8));
  EXPECT_DOUBLE_EQ(slimpipe_optimizer_bytes(shape), 12 * parameters / (8 * 8 * 4));
}

TEST(SlimPipeWeights, OfExpertsAreSharedByExpertParallelism) {
  CostShape shape = shape_of({ModelPreset::slimpipe_8x7b, 512, 1, 16, 8, 8, 4, ""});
  const double all = slimpipe_weight_bytes(shape);
  const double experts = 6.0 * 32 * 8 * 3 * 4096 * 14336 / 8;  // layers, experts, matrices; ranks

  shape.expert = 8;

  EXPECT_DOUBLE_EQ(slimpipe_weight_bytes(shape), all - experts * 7 / 8);
}

// With as many micro-batches in flight as ranks, 1F1B keeps A whatever p is: interleaving adds (p-1)/(p v) of it.
TEST(InterleavedActivations, AreThoseOfTheSamePlannerFiles) {
  const CostShape shape = shape_of({ModelPreset::slimpipe_13b, 256, 8, 2, 8, 16, 5, ""});

  const double whole = whole_activation_bytes(shape, Recompute::none);

  EXPECT_DOUBLE_EQ(whole, 164864.0 * 256 * 1024 * 40 / 16);  // 16 h + 6 f bytes, tokens, layers; t c
  EXPECT_DOUBLE_EQ(interleaved_activation_bytes(shape, 5, Recompute::none), whole * (1 + 7.0 / 40));
}

TEST(ActivationBytes, OfLlamaAreTwelveHiddenFourKeysSixFeedForward) {
  const ModelSpec model = preset_spec(ModelPreset::slimpipe_70b);

  EXPECT_EQ(activation_bytes_per_token(model, Recompute::none), 12 * 8192 + 4 * 1024 + 6 * 28672);
  EXPECT_EQ(activation_bytes_per_token(model, Recompute::selective), 12 * 8192 + 4 * 1024);
}

TEST(ActivationBytes, OfAMixtureCountTheActiveExperts) {
  EXPECT_EQ(activation_bytes_per_token(preset_spec(ModelPreset::slimpipe_8x7b), Recompute::none),
            12 * 4096 + 4 * 1024 + 12 * 14336);
}

// The input, two norms, query, key, value, attention, the stream between: 8 vectors of h; the inputs of GELU and of the
// last product: 2 of f.
TEST(ActivationBytes, OfGpt2AreSixteenHiddenFourFeedForward) {
  EXPECT_EQ(activation_bytes_per_token(preset_spec(ModelPreset::gpt2_124m), Recompute::none), 16 * 768 + 4 * 3072);
}

}  // namespace
}  // namespace penstock
