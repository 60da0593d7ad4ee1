// SPDX-License-Identifier: Apache-2.0
//
// What must not change a bit: where a model is cut, recomputation, when weight gradients are formed, what is kept.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/reference/values.hpp"
#include "pipeline.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

using testing::HasSubstr;

struct PassCase {
  std::string name;
  ModelSpec model;
  bool tied = false;
  DType storage = DType::f32;
  KernelKind kernels = KernelKind::reference;
};

// gtest prints parameters; the name says all.
void PrintTo(const PassCase& value, std::ostream* stream) {
  *stream << value.name;
}

std::vector<PassCase> pass_cases() {
  std::vector<PassCase> cases;
  for (const KernelKind kernels : {KernelKind::reference, KernelKind::host}) {
    for (const DType storage : {DType::bf16, DType::f32}) {
      for (const bool tied : {false, true}) {
        const std::string suffix =
            std::string{tied ? "_tied_" : "_"} + (storage == DType::bf16 ? "bf16_" : "f32_") + name_of(kernels);
        cases.push_back({"llama" + suffix, small_llama(), tied, storage, kernels});
        cases.push_back({"gpt2" + suffix, small_gpt2(), tied, storage, kernels});
      }
    }
  }
  return cases;
}

class Passes : public testing::TestWithParam<PassCase> {
 protected:
  Pipeline cut(std::vector<std::int32_t> layers_per_stage, Recompute recompute = Recompute::none) {
    return cut(std::move(layers_per_stage), *kernels_, recompute);
  }

  static Pipeline cut(std::vector<std::int32_t> layers_per_stage, Kernels& kernels,
                      Recompute recompute = Recompute::none) {
    PipelineShape shape{.model = GetParam().model,
                        .sequences = 3,
                        .tokens = 5,
                        .storage = GetParam().storage,
                        .layers_per_stage = std::move(layers_per_stage),
                        .recompute = recompute};
    shape.model.tie_embeddings = GetParam().tied;
    return Pipeline{shape, kernels};
  }

  KernelsUnderTest kernels_{GetParam().kernels};
};

// The bits of a gradient: NaN and the sign of zero count.
std::vector<std::uint64_t> bits_of(const std::vector<double>& values) {
  std::vector<std::uint64_t> bits;
  bits.reserve(values.size());
  for (const double value : values) bits.push_back(std::bit_cast<std::uint64_t>(value));
  return bits;
}

void expect_same_bits(const Gradients& actual, const Gradients& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_EQ(bits_of(actual.at(name)), bits_of(values)) << name;
  }
}

void expect_finite(const Gradients& gradients) {
  for (const auto& [name, values] : gradients) {
    for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  }
}

TEST_P(Passes, OfAModelInTwoAndThreeStagesGiveTheBitsOfOne) {
  Pipeline whole = cut({3});
  const double loss = whole.run(Backward::whole, test_loss_scale);
  expect_finite(whole.gradients());

  for (const auto& layers : {std::vector{2, 1}, std::vector{1, 2}, std::vector{1, 1, 1}}) {
    Pipeline parts = cut({layers.begin(), layers.end()});

    EXPECT_EQ(parts.run(Backward::whole, test_loss_scale), loss);
    expect_same_bits(parts.gradients(), whole.gradients());
  }
}

TEST_P(Passes, WithWeightGradientsLaterGiveTheSameBits) {
  for (const auto& layers : {std::vector{3}, std::vector{1, 2}}) {
    Pipeline whole = cut({layers.begin(), layers.end()});
    Pipeline split = cut({layers.begin(), layers.end()});

    whole.run(Backward::whole, test_loss_scale);
    split.run(Backward::split, test_loss_scale);

    expect_same_bits(split.gradients(), whole.gradients());
  }
}

TEST_P(Passes, WithRecomputationGiveTheSameBits) {
  Pipeline kept = cut({2, 1});
  const double loss = kept.run(Backward::whole, test_loss_scale);

  for (const auto& [mode, name] : enum_names(Recompute{})) {
    for (const Backward how : {Backward::whole, Backward::split}) {
      Pipeline recomputed = cut({2, 1}, mode);

      EXPECT_EQ(recomputed.run(how, test_loss_scale), loss) << name;
      SCOPED_TRACE(name);
      expect_same_bits(recomputed.gradients(), kept.gradients());
    }
  }
}

TEST_P(Passes, RecomputationLeavesTheBitsOfTheForward) {
  for (const auto& layers : {std::vector{3}, std::vector{2, 1}}) {
    Pipeline pipeline = cut({layers.begin(), layers.end()});
    pipeline.forward(StageMath::Keep::activations);
    for (std::size_t stage = 0; stage < pipeline.stages(); ++stage) {
      const auto activations = pipeline.memory(stage, BufferKind::activations).bytes();
      const auto logits = pipeline.memory(stage, BufferKind::logits).bytes();
      pipeline.memory(stage, BufferKind::activations).fill(std::byte{0xFF});
      pipeline.memory(stage, BufferKind::logits).fill(std::byte{0xFF});

      pipeline.math(stage).recompute(*kernels_, pipeline.buffers(stage));

      EXPECT_EQ(pipeline.memory(stage, BufferKind::activations).bytes(), activations);
      EXPECT_EQ(pipeline.memory(stage, BufferKind::logits).bytes(), logits);
    }
  }
}

TEST_P(Passes, OnTwoThreadsGiveTheBitsOfOne) {
  const KernelsUnderTest two_threads{GetParam().kernels, 2};
  Pipeline one = cut({3});
  Pipeline two = cut({3}, *two_threads);

  const double loss = one.run(Backward::whole, test_loss_scale);

  EXPECT_EQ(two.run(Backward::whole, test_loss_scale), loss);
  expect_same_bits(two.gradients(), one.gradients());
}

TEST_P(Passes, OfASecondMicroBatchAddToTheGradients) {
  Pipeline pipeline = cut({2, 1});
  pipeline.run(Backward::whole, test_loss_scale);
  const Gradients once = pipeline.gradients();

  pipeline.backward(Backward::whole, test_loss_scale);

  // Sums of 15 rows may be added to one by one, each sum rounded to float.
  constexpr double tolerance = 15 * 0x1p-24;
  for (const auto& [name, values] : pipeline.gradients()) {
    std::vector<double> doubled = once.at(name);
    for (double& value : doubled) value *= 2;
    EXPECT_TENSOR_NEAR(values, doubled, tolerance) << name;
  }
}

TEST_P(Passes, ThatKeepNothingGiveTheSameLossAndLogits) {
  Pipeline pipeline = cut({2, 1});
  const double loss = pipeline.forward(StageMath::Keep::activations);
  const TensorSlot slot = pipeline.math(1).layout(BufferKind::logits).tensors.front();
  const auto logits = pipeline.memory(1, BufferKind::logits).bytes();

  EXPECT_EQ(pipeline.forward(StageMath::Keep::nothing), loss);

  const std::byte* work =
      pipeline.memory(1, BufferKind::workspace).data() + pipeline.math(1).logits_in_workspace().offset.value;
  const auto size = static_cast<std::size_t>(slot.rows * slot.columns * size_of(slot.type));
  EXPECT_EQ(std::vector(work, work + size), std::vector(logits.begin(), logits.begin() + static_cast<long>(size)));
}

TEST_P(Passes, ThatKeepNothingLeaveTheStreamBeforeTheLayersAsked) {
  Pipeline pipeline = cut({1, 2});
  const double loss = pipeline.forward(StageMath::Keep::activations);
  StageShape shape = pipeline.math(1).shape();
  shape.checkpoints = {Layer{1}, Layer{2}};
  const Bytes size = pipeline.math(1).layout(BufferKind::checkpoint).bytes;
  const Memory before_first{size};
  const Memory before_second{size};
  StageBuffers buffers = pipeline.buffers(1);
  buffers.activations = nullptr;
  buffers.logits = nullptr;
  buffers.checkpoints = {before_first.data(), before_second.data()};
  double again = 0;

  StageMath{shape}.forward(*kernels_, buffers, StageMath::Keep::nothing, &again);

  const BufferLayout kept = pipeline.math(1).layout(BufferKind::activations);
  const auto slot = std::find_if(kept.tensors.begin(), kept.tensors.end(),
                                 [](const TensorSlot& tensor) { return tensor.name == "layers/2/input"; });
  ASSERT_NE(slot, kept.tensors.end());
  const auto used = static_cast<std::size_t>(slot->rows * slot->columns * size_of(slot->type));
  const std::byte* inside = pipeline.memory(1, BufferKind::activations).data() + slot->offset.value;
  EXPECT_EQ(again, loss);
  EXPECT_EQ(std::memcmp(before_first.data(), buffers.input, used), 0);
  EXPECT_EQ(std::memcmp(before_second.data(), inside, used), 0);
}

TEST_P(Passes, WithoutTargetsHandBackTheLogitsOfOneRow) {
  Pipeline pipeline = cut({3});
  pipeline.forward(StageMath::Keep::activations);
  const TensorSlot slot = pipeline.math(0).layout(BufferKind::logits).tensors.front();
  const Matrix all_logits{pipeline.memory(0, BufferKind::logits).data() + slot.offset.value, slot.type, slot.rows,
                          slot.columns};
  const Memory logits{Bytes{slot.columns * size_of(slot.type)}};
  StageBuffers buffers = pipeline.buffers(0);
  buffers.targets = nullptr;
  buffers.activations = nullptr;
  buffers.logits = logits.data();
  for (std::int64_t row = 0; row < slot.rows; ++row) {
    buffers.wanted_row = row;
    double loss = -1;

    pipeline.math(0).forward(*kernels_, buffers, StageMath::Keep::nothing, &loss);

    EXPECT_EQ(loss, 0);
    const Matrix wanted{logits.data(), slot.type, 1, slot.columns};
    for (std::int64_t i = 0; i < slot.columns; ++i) {
      // A product of one row may add in another order: sums of at most 16 terms of size 1, in fp32.
      EXPECT_NEAR(reference::element(wanted, 0, i), reference::element(all_logits, row, i), 16 * 0x1p-23) << row;
    }
  }
}

TEST_P(Passes, WithoutTargetsAndRoomForLogitsFormNone) {
  Pipeline pipeline = cut({3});
  StageBuffers buffers = pipeline.buffers(0);
  buffers.targets = nullptr;
  buffers.activations = nullptr;
  buffers.logits = nullptr;
  double loss = -1;

  pipeline.math(0).forward(*kernels_, buffers, StageMath::Keep::nothing, &loss);
  buffers.logits = pipeline.buffers(0).logits;
  buffers.wanted_row = pipeline.math(0).shape().rows();

  EXPECT_EQ(loss, 0);
  EXPECT_THROW(pipeline.math(0).forward(*kernels_, buffers, StageMath::Keep::nothing, &loss), Error);
}

TEST_P(Passes, CountOnlyRowsWithATarget) {
  Pipeline pipeline = cut({3});

  const double loss = pipeline.forward(StageMath::Keep::activations);

  const BufferLayout layout = pipeline.math(0).layout(BufferKind::logits);
  const TensorSlot& slot = layout.tensors.back();
  double sum = 0;
  for (std::int64_t t = 0; t < slot.columns; ++t) {
    const Matrix losses{pipeline.memory(0, BufferKind::logits).data() + slot.offset.value, slot.type, 1, slot.columns};
    const double row = reference::element(losses, 0, t);
    EXPECT_EQ(row == 0, t % 5 == 3) << t;
    sum += row;
  }
  EXPECT_EQ(slot.name, "losses");
  EXPECT_EQ(loss, sum);
}

INSTANTIATE_TEST_SUITE_P(, Passes, testing::ValuesIn(pass_cases()), [](const auto& one) { return one.param.name; });

std::string fault_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    return error.what();
  }
  return "";
}

TEST(MissingBuffers, AreNamed) {
  const auto kernels = make_reference_kernels();
  const Pipeline pipeline{{.model = small_llama(), .storage = DType::f32}, *kernels};
  const StageMath& math = pipeline.math(0);
  const auto without = [&](auto StageBuffers::*member) {
    StageBuffers buffers = pipeline.buffers(0);
    buffers.*member = nullptr;
    return fault_of([&] { math.forward(*kernels, buffers, StageMath::Keep::activations, nullptr); });
  };

  EXPECT_THAT(without(&StageBuffers::workspace), HasSubstr("workspace"));
  EXPECT_THAT(without(&StageBuffers::tokens), HasSubstr("tokens"));
  EXPECT_THAT(without(&StageBuffers::targets), HasSubstr("targets"));
  EXPECT_THAT(without(&StageBuffers::parameters), HasSubstr("embedding/token/weight"));
  EXPECT_THAT(without(&StageBuffers::activations), HasSubstr("layers/0/input"));
  EXPECT_THAT(without(&StageBuffers::logits), HasSubstr("logits"));
}

TEST(StageShapes, ThatAreNoPartOfTheModelAreRefused) {
  const ModelSpec llama = small_llama();
  const ModelSpec gpt2 = small_gpt2();

  EXPECT_THAT(fault_of([&] { StageMath{{.model = llama, .begin = Layer{2}, .end = Layer{2}}}; }),
              HasSubstr("layers 2"));
  EXPECT_THAT(fault_of([&] { StageMath{{.model = llama, .begin = Layer{2}, .end = Layer{4}}}; }), HasSubstr("to 4"));
  EXPECT_THAT(fault_of([&] { StageMath{{.model = gpt2, .begin = Layer{0}, .end = Layer{3}, .tokens = 8}}; }),
              HasSubstr("8 tokens"));
}

}  // namespace
}  // namespace penstock::test
