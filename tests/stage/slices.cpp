// SPDX-License-Identifier: Apache-2.0
//
// Micro-batches cut into slices: the loss and every gradient are those of whole sequences, and what does not change a
// bit of whole sequences does not change one of slices.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "pipeline.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

using testing::ElementsAre;

PipelineShape shape_of(const ModelSpec& model, DType storage, std::int32_t slices) {
  return {.model = model, .sequences = 3, .tokens = 7, .storage = storage, .slices = slices};
}

struct SliceCase {
  std::string name;
  ModelSpec model;
  bool tied = false;
  DType storage = DType::f64;
  KernelKind kernels = KernelKind::reference;
  std::int32_t slices = 2;
  double key_cost = 0;
};

// gtest prints parameters; the name says all.
void PrintTo(const SliceCase& value, std::ostream* stream) {
  *stream << value.name;
}

std::vector<SliceCase> slice_cases(DType storage, KernelKind kernels) {
  std::vector<SliceCase> cases;
  for (const bool tied : {false, true}) {
    for (const std::int32_t slices : {2, 3, 7}) {
      const std::string suffix = std::string{tied ? "_tied_" : "_"} + std::to_string(slices);
      cases.push_back({"llama" + suffix, small_llama(), tied, storage, kernels, slices});
      cases.push_back({"gpt2" + suffix, small_gpt2(), tied, storage, kernels, slices});
      if (slices == 7) continue;
      // Of seven tokens, slices of 5 and 2, or of 4, 2 and 1.
      cases.push_back({"llama_balanced" + suffix, small_llama(), tied, storage, kernels, slices, 10});
      cases.push_back({"gpt2_balanced" + suffix, small_gpt2(), tied, storage, kernels, slices, 10});
    }
  }
  return cases;
}

class Slices : public testing::TestWithParam<SliceCase> {
 protected:
  PipelineShape shape(std::int32_t slices) const {
    PipelineShape shape = shape_of(GetParam().model, GetParam().storage, slices);
    shape.model.tie_embeddings = GetParam().tied;
    shape.key_cost = GetParam().key_cost;
    return shape;
  }
  PipelineShape sliced() const { return shape(GetParam().slices); }

  /// Compares what slices give with what whole sequences give.
  void expect_whole_sequences(double loss_tolerance, double gradient_tolerance) {
    Pipeline whole{shape(1), *kernels_};
    Pipeline parts{sliced(), *kernels_};

    const double loss = whole.run(Backward::whole, test_loss_scale);

    EXPECT_NEAR(parts.run(Backward::whole, test_loss_scale), loss, loss_tolerance * loss);
    const Gradients expected = whole.gradients();
    for (const auto& [name, values] : parts.gradients()) {
      if (name.ends_with("key/bias")) {
        // Zero but for rounding, where no rotation shows it to softmax: measured against its neighbour.
        const std::string query = name.substr(0, name.size() - 8) + "query/bias";
        EXPECT_LT(norm_of(values), gradient_tolerance * norm_of(expected.at(query))) << name;
        continue;
      }
      EXPECT_GT(norm_of(values), 0) << name;
      EXPECT_TENSOR_NEAR(values, expected.at(name), gradient_tolerance) << name;
    }
  }

  KernelsUnderTest kernels_{GetParam().kernels};
};

class SlicesInDouble : public Slices {};
TEST_P(SlicesInDouble, GiveTheLossAndEveryGradientOfWholeSequences) {
  expect_whole_sequences(1e-12, 1e-12);
}
INSTANTIATE_TEST_SUITE_P(, SlicesInDouble, testing::ValuesIn(slice_cases(DType::f64, KernelKind::reference)),
                         [](const auto& one) { return one.param.name; });

class SlicesOnTheHost : public Slices {};
TEST_P(SlicesOnTheHost, GiveTheLossAndEveryGradientOfWholeSequences) {
  expect_whole_sequences(1e-6, 1e-5);
}
INSTANTIATE_TEST_SUITE_P(, SlicesOnTheHost, testing::ValuesIn(slice_cases(DType::f32, KernelKind::host)),
                         [](const auto& one) { return one.param.name; });

class SlicesInBits : public Slices {
 protected:
  struct Result {
    double loss = 0;
    Gradients gradients;
  };
  static Result run(const PipelineShape& shape, Kernels& kernels, Backward how = Backward::whole) {
    Pipeline pipeline{shape, kernels};
    const double loss = pipeline.run(how, test_loss_scale);
    return {loss, pipeline.gradients()};
  }
  static void expect_same(const Result& actual, const Result& expected) {
    EXPECT_EQ(actual.loss, expected.loss);
    for (const auto& [name, values] : expected.gradients) {
      for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
      EXPECT_EQ(actual.gradients.at(name), values) << name;
    }
  }
};

TEST_P(SlicesInBits, DoNotDependOnStagesSplitNorThreads) {
  const Result expected = run(sliced(), *kernels_);
  PipelineShape in_stages = sliced();
  in_stages.layers_per_stage = {1, 2};
  const KernelsUnderTest two_threads{GetParam().kernels, 2};

  expect_same(run(in_stages, *kernels_), expected);
  expect_same(run(in_stages, *kernels_, Backward::split), expected);
  expect_same(run(sliced(), *two_threads), expected);
}

TEST_P(SlicesInBits, DoNotDependOnRecomputation) {
  const Result expected = run(sliced(), *kernels_);
  const KernelsUnderTest two_threads{GetParam().kernels, 2};

  for (const auto& [mode, name] : enum_names(Recompute{})) {
    SCOPED_TRACE(name);
    PipelineShape recomputed = sliced();
    recomputed.recompute = mode;
    PipelineShape in_stages = recomputed;
    in_stages.layers_per_stage = {1, 2};

    expect_same(run(recomputed, *kernels_, Backward::split), expected);
    expect_same(run(in_stages, *two_threads), expected);
  }
}

TEST_P(SlicesInBits, GiveTheSameLossWhenNothingButKeysAndValuesIsKept) {
  Pipeline pipeline{sliced(), *kernels_};
  const double loss = pipeline.forward(StageMath::Keep::activations);

  EXPECT_EQ(pipeline.forward(StageMath::Keep::nothing), loss);
}

std::vector<SliceCase> bit_cases() {
  std::vector<SliceCase> cases;
  for (const DType storage : {DType::bf16, DType::f32}) {
    for (SliceCase one : slice_cases(storage, KernelKind::host)) {
      one.name += storage == DType::bf16 ? "_bf16" : "_f32";
      if (one.slices != 2) cases.push_back(one);
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(, SlicesInBits, testing::ValuesIn(bit_cases()),
                         [](const auto& one) { return one.param.name; });

TEST(ASlice, WithoutTargetsGivesNoLossAndLeavesTheOthersTheirs) {
  const auto kernels = make_reference_kernels();
  Pipeline pipeline{shape_of(small_llama(), DType::f64, 3), *kernels};
  Pipeline masked{shape_of(small_llama(), DType::f64, 3), *kernels};
  const Slice last{2};

  masked.mask_targets(last);
  const double loss = pipeline.forward(StageMath::Keep::activations);
  const double masked_loss = masked.run(Backward::whole, test_loss_scale);

  double of_last = 0;
  pipeline.math(0).forward(*kernels, pipeline.buffers(0, last), StageMath::Keep::activations, &of_last);
  EXPECT_GT(of_last, 1);
  EXPECT_NEAR(masked_loss, loss - of_last, 1e-12 * loss);
  EXPECT_TRUE(std::isfinite(norm_of(masked.gradients().at("layers/0/attention/key/weight"))));
}

TEST(ASlice, KeepsItsShareOfTheActivationsAndFp32SumsOfItsKeysAndValues) {
  const ModelSpec model{.layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4, .head_size = 32, .ffn = 704};
  StageShape shape{.model = model, .begin = Layer{1}, .end = Layer{3}, .first = false, .last = false, .tokens = 1024};
  const auto bytes_of = [&](std::int32_t slices, BufferKind kind) {
    shape.slices = slices;
    return StageMath{shape}.layout(kind).bytes.value;
  };

  EXPECT_EQ(bytes_of(8, BufferKind::activations) * 8, bytes_of(1, BufferKind::activations));
  EXPECT_EQ(bytes_of(8, BufferKind::input) * 8, bytes_of(1, BufferKind::input));
  EXPECT_EQ(bytes_of(8, BufferKind::key_value_gradients), 2 * 128 * (2 * 128) * 4);
  EXPECT_EQ(bytes_of(8, BufferKind::key_values), 2 * 128 * (2 * 128) * 2);
  EXPECT_EQ(bytes_of(1, BufferKind::key_value_gradients), 0);
  EXPECT_EQ(bytes_of(1, BufferKind::key_values), 0);
}

TEST(ASlice, HasBuffersOfTheLongest) {
  StageShape shape{.model = small_llama(), .end = Layer{3}, .tokens = 100, .slices = 4, .key_cost = 0.01};
  const Bytes balanced = StageMath{shape}.layout(BufferKind::activations).bytes;
  ASSERT_EQ(shape.tokens_of(Slice{0}).count, 32);

  shape.tokens = 128;
  shape.key_cost = 0;

  EXPECT_EQ(StageMath{shape}.layout(BufferKind::activations).bytes, balanced);
}

TEST(ASlice, WithoutTheSlicesBeforeItIsRefused) {
  const auto kernels = make_reference_kernels();
  Pipeline pipeline{shape_of(small_llama(), DType::f64, 2), *kernels};
  StageBuffers buffers = pipeline.buffers(0, Slice{1});
  buffers.earlier.clear();
  double loss = 0;

  EXPECT_THROW(pipeline.math(0).forward(*kernels, buffers, StageMath::Keep::activations, &loss), Error);
  EXPECT_THROW(pipeline.math(0).backward(*kernels, buffers, test_loss_scale), Error);
  EXPECT_THROW((StageMath{StageShape{.model = small_llama(), .end = Layer{3}, .tokens = 3, .slices = 4}}), Error);
}

}  // namespace
}  // namespace penstock::test
