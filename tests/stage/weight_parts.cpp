// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stage/pipeline.hpp"

namespace penstock::test {
namespace {

/// Two stages of a layer and two, two slices: every call of the last stage's W has a head.
PipelineShape two_stages(const ModelSpec& model, KernelKind kind) {
  return {.model = model,
          .storage = kind == KernelKind::reference ? DType::f64 : DType::bf16,
          .layers_per_stage = {1, 2},
          .slices = 2};
}

/// The numbers of a stage's products, each once, in an order that is neither ascending nor descending.
std::vector<std::int64_t> shuffled(std::int64_t products) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(products));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [](std::int64_t a, std::int64_t b) { return 5 * a % 7 < 5 * b % 7; });
  return order;
}

/// What the parts of both slices leave: slices descending for each product, products in the order given.
std::vector<std::byte> gradients_of_products(const Pipeline& pipeline, std::size_t stage, Kernels& kernels,
                                             const std::vector<std::int64_t>& order) {
  pipeline.memory(stage, BufferKind::gradients).fill(std::byte{0});
  for (const std::int64_t product : order) {
    for (const Slice slice : {Slice{1}, Slice{0}}) {
      pipeline.memory(stage, BufferKind::workspace).fill(std::byte{0xFF});
      pipeline.math(stage).backward_weight(kernels, pipeline.buffers(stage, slice), {product, product + 1});
    }
  }
  return pipeline.memory(stage, BufferKind::gradients).bytes();
}

std::vector<std::byte> gradients_of_whole(const Pipeline& pipeline, std::size_t stage, Kernels& kernels) {
  pipeline.memory(stage, BufferKind::gradients).fill(std::byte{0});
  for (const Slice slice : {Slice{1}, Slice{0}}) {
    pipeline.math(stage).backward_weight(kernels, pipeline.buffers(stage, slice));
  }
  return pipeline.memory(stage, BufferKind::gradients).bytes();
}

class WeightProducts : public testing::TestWithParam<KernelKind> {};

TEST_P(WeightProducts, InAnyOrderGiveTheBitsOfAllTogether) {
  const KernelsUnderTest kernels{GetParam()};
  for (const ModelSpec& model : {small_llama(), small_gpt2()}) {
    Pipeline pipeline{two_stages(model, GetParam()), *kernels};
    pipeline.run(Backward::split, 1.0);

    for (const std::size_t stage : {0U, 1U}) {
      const auto expected = gradients_of_whole(pipeline, stage, *kernels);

      const auto order = shuffled(pipeline.math(stage).weight_products());
      const auto actual = gradients_of_products(pipeline, stage, *kernels, order);

      EXPECT_TRUE(actual == expected) << "stage " << stage;
      EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [](std::byte byte) { return byte != std::byte{0}; }));
    }
  }
}

TEST_P(WeightProducts, AreEachNeeded) {
  const KernelsUnderTest kernels{GetParam()};
  Pipeline pipeline{two_stages(small_llama(), GetParam()), *kernels};
  pipeline.run(Backward::split, 1.0);
  const std::int64_t products = pipeline.math(1).weight_products();
  const auto expected = gradients_of_whole(pipeline, 1, *kernels);

  for (std::int64_t left_out = 0; left_out < products; ++left_out) {
    std::vector<std::int64_t> order = shuffled(products);
    order.erase(std::find(order.begin(), order.end(), left_out));

    EXPECT_FALSE(gradients_of_products(pipeline, 1, *kernels, order) == expected) << "without product " << left_out;
  }
}

TEST_P(WeightProducts, AreThoseOfTheHeadAndTheLayers) {
  const KernelsUnderTest kernels{GetParam()};
  const Pipeline llama{two_stages(small_llama(), GetParam()), *kernels};
  const Pipeline gpt2{two_stages(small_gpt2(), GetParam()), *kernels};

  // Query, key, value, attention output, down, up, and llama's gate.
  EXPECT_EQ(llama.math(0).weight_products(), 7);
  EXPECT_EQ(llama.math(1).weight_products(), 1 + 2 * 7);
  EXPECT_EQ(gpt2.math(0).weight_products(), 6);
  EXPECT_EQ(gpt2.math(1).weight_products(), 1 + 2 * 6);
}

TEST_P(WeightProducts, HaveTheSizesOfTheirMatrices) {
  const KernelsUnderTest kernels{GetParam()};
  for (const ModelSpec& model : {small_llama(), small_gpt2()}) {
    const Pipeline pipeline{two_stages(model, GetParam()), *kernels};
    const std::int64_t hidden = model.hidden;
    const std::int64_t up = hidden * model.ffn;
    const std::int64_t square = hidden * model.query_width();
    const std::int64_t narrow = hidden * model.kv_width();
    std::vector<std::int64_t> layer{up, up, square, square, narrow, narrow};
    if (model.family == Family::llama) layer.insert(layer.begin(), up);

    EXPECT_EQ(pipeline.math(0).weight_product_sizes(), layer);
    std::vector<std::int64_t> last{hidden * model.vocabulary};
    for (int number = 0; number < 2; ++number) last.insert(last.end(), layer.begin(), layer.end());
    EXPECT_EQ(pipeline.math(1).weight_product_sizes(), last);
  }
}

INSTANTIATE_TEST_SUITE_P(, WeightProducts, testing::Values(KernelKind::reference, KernelKind::host),
                         [](const auto& one) { return std::string{name_of(one.param)}; });

}  // namespace
}  // namespace penstock::test
