// SPDX-License-Identifier: Apache-2.0
//
// What a forward keeps by what the backward forms again, to the byte.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stage/layout.hpp"
#include "stage/stage.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr std::int64_t hidden = 256;
constexpr std::int64_t keys = 128;  // width of all keys of a token
constexpr std::int64_t ffn = 704;

/// One layer in the middle of a model; all tensors have sizes that need no padding.
StageShape one_layer(Family family, Recompute recompute, std::int32_t slices = 1) {
  const bool is_llama = family == Family::llama;
  const ModelSpec model{.family = family,
                        .layers = 3,
                        .hidden = 256,
                        .heads = 8,
                        .kv_heads = is_llama ? 4 : 8,
                        .head_size = 32,
                        .ffn = 704,
                        .positions = 1024};
  return {.model = model,
          .begin = Layer{1},
          .end = Layer{2},
          .first = false,
          .last = false,
          .sequences = 2,
          .tokens = 512,
          .slices = slices,
          .recompute = recompute};
}

std::vector<std::string> names_of(const StageShape& shape, BufferKind kind) {
  std::vector<std::string> names;
  for (const TensorSlot& slot : StageMath{shape}.layout(kind).tensors) {
    names.push_back(slot.name.substr(slot.name.rfind('/') + 1));
  }
  return names;
}

/// Bytes of a token, its share of the statistics included.
std::int64_t bytes_per_token(const StageShape& shape, BufferKind kind) {
  return StageMath{shape}.layout(kind).bytes.value / (shape.rows() / shape.slices);
}

std::int64_t kept(Family family, Recompute recompute, std::int32_t slices = 1) {
  return bytes_per_token(one_layer(family, recompute, slices), BufferKind::activations);
}

TEST(AForwardThatKeepsLess, KeepsTheBytesOfItsModeForEachToken) {
  const std::int64_t statistics = 4 * (1 + 1 + 8);                              // two norms, log-sum-exp of eight heads
  const std::int64_t all = 2 * (5 * hidden + 2 * keys + 3 * ffn) + statistics;  // the stage has its input of its own

  EXPECT_EQ(kept(Family::llama, Recompute::none), all);
  EXPECT_EQ(kept(Family::llama, Recompute::attention), all - 2 * (hidden + hidden) - 4);
  EXPECT_EQ(kept(Family::llama, Recompute::selective), all - 2 * 3 * ffn);
  EXPECT_EQ(kept(Family::llama, Recompute::layers), 0);
  EXPECT_EQ(kept(Family::llama, Recompute::layers, 4), 2 * 2 * keys);
  EXPECT_EQ(kept(Family::llama, Recompute::full), all);  // what R fills
}

TEST(AForwardThatKeepsLess, KeepsAlsoTheMeansOfGpt2) {
  const std::int64_t all = kept(Family::gpt2, Recompute::none);

  EXPECT_EQ(kept(Family::gpt2, Recompute::attention), all - 2 * (hidden + hidden) - 8);
  EXPECT_EQ(kept(Family::gpt2, Recompute::selective), all - 2 * 2 * ffn);
}

TEST(AForwardThatKeepsLess, KeepsTheInputOfEachLayerWithinItsStage) {
  StageShape shape = one_layer(Family::llama, Recompute::layers);
  shape.end = Layer{3};

  EXPECT_THAT(names_of(shape, BufferKind::activations), UnorderedElementsAre("input"));
  EXPECT_EQ(bytes_per_token(shape, BufferKind::activations), 2 * hidden);
}

TEST(ASplitBackward, KeepsForWWhatWasFormedAgainAndWReads) {
  const auto operands = [](Recompute recompute) {
    return bytes_per_token(one_layer(Family::llama, recompute), BufferKind::weight_operands);
  };
  const std::int64_t gradients = operands(Recompute::none);

  EXPECT_EQ(operands(Recompute::attention) - gradients, 2 * hidden);
  EXPECT_EQ(operands(Recompute::selective) - gradients, 2 * ffn);
  EXPECT_EQ(operands(Recompute::layers) - gradients, 2 * (3 * hidden + ffn));
  EXPECT_THAT(names_of(one_layer(Family::llama, Recompute::layers), BufferKind::weight_operands),
              AllOf(IsSupersetOf({"attention_norm", "attention", "ffn_norm", "hidden"}), Not(Contains("query")),
                    Not(Contains("gate"))));
}

TEST(TheWorkspaceOfABackward, HasRoomForOneLayerOfWhatIsFormedAgain) {
  const auto workspace = [](Recompute recompute, Layer end) {
    StageShape shape = one_layer(Family::llama, recompute);
    shape.end = end;
    return StageLayouts{shape, formed_again(shape)}.backward_work.buffer.bytes.value / shape.rows();
  };
  const std::int64_t gradients = workspace(Recompute::none, Layer{2});

  EXPECT_EQ(workspace(Recompute::attention, Layer{2}) - gradients, 2 * 2 * hidden + 4);
  EXPECT_EQ(workspace(Recompute::selective, Layer{2}) - gradients, 2 * 3 * ffn);
  EXPECT_EQ(workspace(Recompute::layers, Layer{2}) - gradients, kept(Family::llama, Recompute::none));
  EXPECT_EQ(workspace(Recompute::layers, Layer{3}), workspace(Recompute::layers, Layer{2}));
}

}  // namespace
}  // namespace penstock
