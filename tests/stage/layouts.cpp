// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline.hpp"

namespace penstock::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

StageShape shape_of(const ModelSpec& model, std::int32_t begin, std::int32_t end) {
  return {.model = model,
          .begin = Layer{begin},
          .end = Layer{end},
          .first = begin == 0,
          .last = end == model.layers,
          .sequences = 2,
          .tokens = 5,
          .storage = DType::bf16};
}

std::int64_t bytes_of(const StageMath& math, BufferKind kind) {
  return math.layout(kind).bytes.value;
}

std::vector<BufferKind> all_kinds() {
  std::vector<BufferKind> kinds(buffer_kind_count);
  for (int kind = 0; kind < buffer_kind_count; ++kind) {
    kinds[static_cast<std::size_t>(kind)] = static_cast<BufferKind>(kind);
  }
  return kinds;
}

TEST(Layouts, AreAlignedAndDoNotOverlap) {
  for (const ModelSpec& model : {small_llama(), small_gpt2()}) {
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 2}, {2, 3}, {0, 3}}) {
      const StageMath math{shape_of(model, begin, end)};
      for (const BufferKind kind : all_kinds()) {
        const BufferLayout layout = math.layout(kind);
        EXPECT_EQ(layout.bytes.value % buffer_alignment, 0);
        std::int64_t free_from = 0;
        for (const TensorSlot& slot : layout.tensors) {
          EXPECT_EQ(slot.offset.value % 64, 0) << slot.name;
          if (kind != BufferKind::workspace) {
            EXPECT_GE(slot.offset.value, free_from) << slot.name;
          }
          free_from = slot.offset.value + slot.rows * slot.columns * size_of(slot.type);
          EXPECT_LE(free_from, layout.bytes.value) << slot.name;
        }
      }
    }
  }
}

// 12 h + 4 h_kv + 6 f bytes per token and layer in bf16, when the heads are as wide as the stream, and the statistics.
TEST(Layouts, KeepTheStatedBytesPerTokenOfALlamaLayer) {
  const ModelSpec model{.layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4, .head_size = 32, .ffn = 704};
  StageShape one = shape_of(model, 1, 2);
  StageShape two = shape_of(model, 1, 3);
  one.tokens = two.tokens = 64;

  const std::int64_t bytes =
      bytes_of(StageMath{two}, BufferKind::activations) - bytes_of(StageMath{one}, BufferKind::activations);

  EXPECT_EQ(bytes, one.rows() * (12 * 256 + 4 * 128 + 6 * 704 + 4 * (8 + 2)));
}

TEST(Layouts, DoNotCopyTheInputOfALaterStage) {
  const StageMath first{shape_of(small_llama(), 0, 1)};
  const StageMath second{shape_of(small_llama(), 1, 2)};

  EXPECT_NE(find_tensor(first.layout(BufferKind::activations), "layers/0/input"), nullptr);
  EXPECT_EQ(find_tensor(second.layout(BufferKind::activations), "layers/1/input"), nullptr);
}

TEST(Layouts, HaveOnlyTheBuffersOfTheStagesPlace) {
  const StageMath first{shape_of(small_llama(), 0, 1)};
  const StageMath last{shape_of(small_llama(), 2, 3)};

  EXPECT_THAT(first.layout(BufferKind::input).tensors, IsEmpty());
  EXPECT_THAT(first.layout(BufferKind::input_gradient).tensors, IsEmpty());
  EXPECT_THAT(first.layout(BufferKind::logits).tensors, IsEmpty());
  EXPECT_THAT(last.layout(BufferKind::output).tensors, IsEmpty());
  EXPECT_THAT(last.layout(BufferKind::output_gradient).tensors, IsEmpty());
  EXPECT_GE(bytes_of(first, BufferKind::output), 2 * 5 * 10 * 2);
  EXPECT_GE(bytes_of(last, BufferKind::input), 2 * 5 * 10 * 2);
}

TEST(Layouts, OfTokensHoldInputsFirstAndTargetsLast) {
  const auto names = [](const StageMath& math) {
    std::vector<std::string> result;
    for (const TensorSlot& slot : math.layout(BufferKind::tokens).tensors) result.push_back(slot.name);
    return result;
  };

  EXPECT_THAT(names(StageMath{shape_of(small_llama(), 0, 1)}), ElementsAre("tokens"));
  EXPECT_THAT(names(StageMath{shape_of(small_llama(), 1, 2)}), IsEmpty());
  EXPECT_THAT(names(StageMath{shape_of(small_llama(), 2, 3)}), ElementsAre("targets"));
  EXPECT_THAT(names(StageMath{shape_of(small_llama(), 0, 3)}), ElementsAre("tokens", "targets"));
}

TEST(Layouts, FollowTheCanonicalOrderOfParameters) {
  for (const BufferKind kind : {BufferKind::parameters, BufferKind::gradients}) {
    const StageMath math{shape_of(small_gpt2(), 1, 3)};
    const auto parameters = parameters_of_stage(small_gpt2(), Layer{1}, Layer{3}, false, true);
    const BufferLayout layout = math.layout(kind);

    ASSERT_EQ(layout.tensors.size(), parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(layout.tensors[i].name, parameters[i].name);
      EXPECT_EQ(layout.tensors[i].rows, parameters[i].rows);
      EXPECT_EQ(layout.tensors[i].columns, parameters[i].columns);
      EXPECT_EQ(layout.tensors[i].type, kind == BufferKind::parameters ? DType::bf16 : DType::f32);
    }
  }
}

TEST(TiedHead, HasASecondGradientOnlyWhereItSharesTheStageOfTheEmbedding) {
  ModelSpec tied = small_llama();
  tied.tie_embeddings = true;
  const StageMath whole{shape_of(tied, 0, 3)};
  const StageMath last{shape_of(tied, 2, 3)};
  const StageMath untied{shape_of(small_llama(), 0, 3)};

  ASSERT_TRUE(whole.tied_head_gradient().has_value());
  EXPECT_EQ(whole.tied_head_gradient()->name, "head/weight");
  EXPECT_EQ(whole.layout(BufferKind::gradients).tensors.back().offset, whole.tied_head_gradient()->offset);
  EXPECT_EQ(find_tensor(whole.layout(BufferKind::parameters), "head/weight"), nullptr);
  EXPECT_EQ(last.layout(BufferKind::gradients).tensors.back().name, "embedding/token/weight");
  EXPECT_FALSE(last.tied_head_gradient().has_value());
  EXPECT_FALSE(untied.tied_head_gradient().has_value());
}

TEST(StageBytes, OfTheWorkspaceIncludeTheScratchOfTheKernels) {
  const auto kernels = make_reference_kernels();
  const StageMath math{shape_of(small_llama(), 0, 3)};

  const StageBytes bytes = math.bytes(*kernels);

  for (const BufferKind kind : all_kinds()) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(kind)], math.layout(kind).bytes) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace penstock::test
