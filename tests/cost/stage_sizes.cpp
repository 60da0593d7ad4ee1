// SPDX-License-Identifier: Apache-2.0
#include "cost/stage_sizes.hpp"

#include <gtest/gtest.h>

#include "cost/shapes.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

std::int64_t size_of(const PerStage<StageBytes>& sizes, int stage, BufferKind kind) {
  return sizes[Stage{stage}][static_cast<std::size_t>(kind)].value;
}

TEST(StageSizes, OfParametersAddUpToTheModel) {
  const CostShape shape = shape_of(preset_spec(ModelPreset::mixtral_8x7b), 8);

  const auto sizes = stage_bytes(shape);

  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  for (int stage = 0; stage < 8; ++stage) {
    parameters += size_of(sizes, stage, BufferKind::parameters);
    gradients += size_of(sizes, stage, BufferKind::gradients);
  }
  EXPECT_EQ(parameters, 2 * parameter_count(shape.model));
  EXPECT_EQ(gradients, 4 * parameter_count(shape.model));
}

TEST(StageSizes, AreThoseOfOneDevice) {
  CostShape shape = shape_of(preset_spec(ModelPreset::slimpipe_70b), 4);
  shape.tensor = 4;
  shape.context = 2;
  shape.slices = 8;

  const auto sizes = stage_bytes(shape);

  const std::int64_t tokens = 4096 / 8 / 2 / 4;  // of a slice, by context and, in the stream, by tensor
  EXPECT_EQ(size_of(sizes, 1, BufferKind::input), tokens * 8192 * 2);
  EXPECT_EQ(size_of(sizes, 1, BufferKind::activations), tokens * 20 * (12 * 8192 + 4 * 1024 + 6 * 28672));
  EXPECT_EQ(size_of(sizes, 1, BufferKind::key_value_gradients), tokens * 20 * 2 * 1024 * 4);
  EXPECT_EQ(size_of(sizes, 1, BufferKind::key_values), tokens * 20 * 2 * 1024 * 2);
  EXPECT_EQ(size_of(sizes, 3, BufferKind::logits), tokens * 128000 * 4);
  EXPECT_EQ(size_of(sizes, 2, BufferKind::logits), 0);
  EXPECT_EQ(size_of(sizes, 0, BufferKind::tokens), 4096 / 2 * 4);
  EXPECT_EQ(size_of(sizes, 1, BufferKind::tokens), 0);
}

TEST(StageSizes, OfOptimizerStatesOnTheDeviceAreSharedByTheCopies) {
  CostShape shape = shape_of(preset_spec(ModelPreset::mixtral_8x7b), 8);
  shape.optimizer = Place::device;
  shape.context = 2;
  shape.data = 4;
  const ParameterCounts counts = parameter_counts(shape.model);

  const auto whole = stage_bytes(shape);
  shape.expert = 8;
  const auto with_experts_shared = stage_bytes(shape);

  // Masters and two moments, 4 bytes each; a device has the states of 1/8 of each layer, however its experts lie.
  const std::int64_t bytes = 4 * (counts.layer + counts.layer_experts) * 12 / 8;
  EXPECT_EQ(size_of(whole, 1, BufferKind::optimizer_states), bytes);
  EXPECT_EQ(size_of(with_experts_shared, 1, BufferKind::optimizer_states), bytes);
}

TEST(StageSizes, OfLayersThatAreRecomputedAreTheirInputs) {
  CostShape shape = shape_of(preset_spec(ModelPreset::slimpipe_70b), 4);
  const auto kept = stage_bytes(shape);
  shape.recompute = PerStage<Recompute>(4, Recompute::layers);

  const auto sizes = stage_bytes(shape);

  EXPECT_EQ(size_of(sizes, 1, BufferKind::activations), std::int64_t{4096} * 20 * 8192 * 2);
  // Beside its gradients, which are more than what it kept, the backward of a layer has the rest of its activations.
  const std::int64_t rest = std::int64_t{4096} * (10 * 8192 + 4 * 1024 + 6 * 28672);
  EXPECT_EQ(size_of(sizes, 1, BufferKind::workspace), size_of(kept, 1, BufferKind::workspace) + rest);
}

TEST(StageSizes, OfLayersOfSlicesThatAreRecomputedHaveTheirKeysAndValues) {
  CostShape shape = shape_of(preset_spec(ModelPreset::slimpipe_70b), 4);
  shape.slices = 8;
  shape.recompute = PerStage<Recompute>(4, Recompute::layers);

  const auto sizes = stage_bytes(shape);

  EXPECT_EQ(size_of(sizes, 1, BufferKind::activations), std::int64_t{4096 / 8} * 20 * 2 * (8192 + 2 * 1024));
}

// What W reads goes from activations to its operands; the rest is gone after I.
TEST(StageSizes, OfRecomputationWithinTheBackwardAreThoseOfItsMode) {
  CostShape shape = shape_of(preset_spec(ModelPreset::slimpipe_70b), 4);
  const auto kept = stage_bytes(shape);
  const auto change = [&](Recompute mode, BufferKind kind) {
    shape.recompute = PerStage<Recompute>(4, mode);
    return size_of(stage_bytes(shape), 1, kind) - size_of(kept, 1, kind);
  };
  const std::int64_t token = std::int64_t{4096} * 20 * 2;

  EXPECT_EQ(change(Recompute::attention, BufferKind::activations), -token * 2 * 8192);
  EXPECT_EQ(change(Recompute::attention, BufferKind::weight_operands), token * 8192);
  EXPECT_EQ(change(Recompute::selective, BufferKind::activations), -token * 3 * 28672);
  EXPECT_EQ(change(Recompute::selective, BufferKind::weight_operands), token * 28672);
  EXPECT_EQ(change(Recompute::layers, BufferKind::weight_operands), token * (3 * 8192 + 28672));
}

TEST(StageSizes, WithVocabularyParallelismPutAShareOfTheLogitsOnEachRank) {
  CostShape shape = shape_of(preset_spec(ModelPreset::slimpipe_70b), 8);
  shape.pipeline = 4;
  const auto before = stage_bytes(shape);

  shape.vocabulary_parallel = true;
  const auto after = stage_bytes(shape);

  const std::int64_t share = std::int64_t{4096} * 128000;  // 4 bytes / 4 ranks
  const auto grown = [&](int stage) {
    return size_of(after, stage, BufferKind::activations) - size_of(before, stage, BufferKind::activations);
  };
  EXPECT_EQ(size_of(after, 7, BufferKind::logits), share);
  EXPECT_EQ(grown(7), 0);
  EXPECT_EQ(grown(4), share);
  EXPECT_EQ(grown(3), 0);
}

TEST(StageSizes, SplitActivationsByTheShareThatIsOffloaded) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const auto whole = size_of(stage_bytes(shape), 1, BufferKind::activations);

  shape.offload_ratio = 0.25;
  const auto sizes = stage_bytes(shape);

  EXPECT_EQ(size_of(sizes, 1, BufferKind::offloadable), whole / 4);
  EXPECT_EQ(size_of(sizes, 1, BufferKind::activations), whole - whole / 4);
}

TEST(StageSizes, OfDecoupledPassesAreThoseOfTheirOwnStages) {
  CostShape shape = shape_of(preset_spec(ModelPreset::spipe_10b), 8);
  shape.backward_stages = even_partition(48, 24).stages;

  const auto sizes = stage_bytes(shape);

  ASSERT_EQ(sizes.size(), 24);
  const ParameterCounts counts = parameter_counts(shape.model);
  EXPECT_EQ(size_of(sizes, 3, BufferKind::parameters), 2 * 6 * counts.layer);
  EXPECT_EQ(size_of(sizes, 3, BufferKind::backward_parameters), 2 * 2 * counts.layer);
  EXPECT_EQ(size_of(sizes, 3, BufferKind::gradients), 4 * 2 * counts.layer);
  EXPECT_EQ(size_of(sizes, 20, BufferKind::parameters), 0);
  EXPECT_EQ(size_of(sizes, 20, BufferKind::checkpoint), std::int64_t{4096} * 4096 * 2);
}

}  // namespace
}  // namespace penstock
