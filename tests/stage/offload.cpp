// SPDX-License-Identifier: Apache-2.0
#include "stage/offload.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stage/pipeline.hpp"

namespace penstock::test {
namespace {

StageShape shape_of(double ratio, std::int32_t slices) {
  const ModelSpec model{.layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4, .head_size = 32, .ffn = 704};
  return {.model = model,
          .begin = Layer{1},
          .end = Layer{4},
          .first = false,
          .tokens = 512,
          .slices = slices,
          .offload_ratio = ratio};
}

Bytes bytes_of(const StageShape& shape, BufferKind kind) {
  return StageMath{shape}.layout(kind).bytes;
}

std::vector<std::string> names_of(const StageShape& shape, BufferKind kind) {
  std::vector<std::string> names;
  for (const TensorSlot& slot : StageMath{shape}.layout(kind).tensors) names.push_back(slot.name);
  return names;
}

TEST(OffloadableActivations, AreTheAskedShareButForHalfOfTheSmallestMatrix) {
  for (const std::int32_t slices : {1, 4}) {
    const auto all = static_cast<double>(bytes_of(shape_of(0, slices), BufferKind::activations).value);
    ASSERT_EQ(bytes_of(shape_of(0, slices), BufferKind::offloadable).value, 0);
    // Keys and values are the smallest; those of slices stay.
    const double smallest = 512.0 / slices * (slices == 1 ? 128 : 256) * 2;

    for (const double ratio : {0.1, 0.25, 0.5, 0.77}) {
      const StageShape shape = shape_of(ratio, slices);
      const auto leaving = static_cast<double>(bytes_of(shape, BufferKind::offloadable).value);
      const auto staying = static_cast<double>(bytes_of(shape, BufferKind::activations).value);

      EXPECT_NEAR(leaving, ratio * all, smallest / 2 + buffer_alignment);
      EXPECT_NEAR(leaving + staying, all, 2 * buffer_alignment);
    }
  }
}

TEST(OffloadableActivations, AreAllOfAWholeSequenceButNoKeysAndValuesOfSlices) {
  EXPECT_EQ(bytes_of(shape_of(1, 1), BufferKind::activations).value, 0);

  EXPECT_THAT(names_of(shape_of(1, 4), BufferKind::activations),
              testing::ElementsAre("layers/1/key", "layers/1/value", "layers/2/key", "layers/2/value", "layers/3/key",
                                   "layers/3/value"));
}

TEST(OffloadableActivations, OfShorterSlicesFitWhereThoseOfTheLongestDo) {
  for (const double ratio : {0.1, 0.5, 0.9}) {
    StageShape shape = shape_of(ratio, 3);
    shape.key_cost = 0.01;
    const SliceLayouts layouts{shape};
    const Bytes leaving = layouts.longest().offloadable.bytes;
    const Bytes staying = layouts.longest().activations.buffer.bytes;
    ASSERT_NE(shape.tokens_of(Slice{0}).count, shape.tokens_of(Slice{2}).count);

    for (const Slice slice : all<Slice>(3)) {
      EXPECT_LE(layouts.of(slice).offloadable.bytes, leaving);
      EXPECT_LE(layouts.of(slice).activations.buffer.bytes, staying);
    }
  }
}

TEST(OffloadableActivations, GiveTheBitsOfThoseThatStay) {
  const KernelsUnderTest kernels{KernelKind::host};
  for (const ModelSpec& model : {small_llama(), small_gpt2()}) {
    for (const std::int32_t slices : {1, 3}) {
      const PipelineShape stays{.model = model, .tokens = 7, .storage = DType::bf16, .slices = slices};
      Pipeline expected{stays, *kernels};
      const double loss = expected.run(Backward::split, 0.125);

      for (const Recompute mode : {Recompute::none, Recompute::attention, Recompute::selective, Recompute::layers}) {
        for (const double ratio : {0.3, 1.0}) {
          PipelineShape leaves = stays;
          leaves.layers_per_stage = {1, 2};
          leaves.offload_ratio = ratio;
          leaves.recompute = mode;
          Pipeline pipeline{leaves, *kernels};

          EXPECT_EQ(pipeline.run(Backward::split, 0.125), loss) << deck_name(mode);
          for (const auto& [name, values] : expected.gradients())
            EXPECT_EQ(pipeline.gradients().at(name), values) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::test
