// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "reference_tensor.hpp"

namespace penstock::test {
namespace {

using testing::HasSubstr;

std::string fault_of(const std::function<void(Kernels&)>& call) {
  const auto kernels = make_reference_kernels();
  try {
    call(*kernels);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    return error.what();
  }
  return "";
}

TEST(ReferenceShapes, ThatDisagreeAreNamedWithBothShapes) {
  Tensor in{DType::f32, 3, 4};
  Tensor weight{DType::f32, 5, 6};
  Tensor out{DType::f32, 3, 5};

  const std::string fault = fault_of([&](Kernels& kernels) { kernels.linear(out, in, weight, {}); });

  EXPECT_EQ(fault, "linear: weight is [5, 6] with stride 6, expected [5, 4]");
}

TEST(ReferenceShapes, OfMissingOperandsAreRefused) {
  Tensor in{DType::f32, 3, 4};
  Tensor out{DType::f32, 3, 4};

  EXPECT_THAT(fault_of([&](Kernels& kernels) { kernels.add(out, in, {}); }), HasSubstr("no memory"));
}

TEST(ReferenceShapes, OfEveryOperationAreChecked) {
  Tensor small{DType::f32, 2, 2};
  Tensor large{DType::f32, 3, 4};
  Tensor row{DType::f32, 1, 4};
  Tensor statistic{DType::f32, 1, 3};
  Tensor numbers{DType::i32, 1, 3};
  const AttentionShape shape{.query_tokens = 3, .key_tokens = 3, .heads = 2, .head_size = 2};
  const auto write = Kernels::Write::overwrite;

  const auto expect = [](const char* operation, const std::function<void(Kernels&)>& call) {
    EXPECT_THAT(fault_of(call), HasSubstr(operation));
  };
  expect("embedding: token_table", [&](Kernels& k) { k.embedding(large, numbers, small, {}, 3, 0); });
  expect("embedding_gradient: ", [&](Kernels& k) { k.embedding_gradient(small, {}, large, numbers, 3, 0); });
  expect("rms_norm: out", [&](Kernels& k) { k.rms_norm(small, statistic, large, row, 1e-5); });
  expect("rms_norm_gradient: weight_gradient",
         [&](Kernels& k) { k.rms_norm_gradient(large, small, large, large, statistic, row, {}); });
  expect("layer_norm: bias", [&](Kernels& k) { k.layer_norm(large, statistic, statistic, large, row, small, 1e-5); });
  expect("layer_norm_gradient: residual",
         [&](Kernels& k) { k.layer_norm_gradient(large, row, row, large, large, statistic, statistic, row, small); });
  expect("linear_input_gradient: ", [&](Kernels& k) { k.linear_input_gradient(small, large, large, write); });
  expect("linear_weight_gradient: ", [&](Kernels& k) { k.linear_weight_gradient(small, large, large); });
  expect("bias_gradient: ", [&](Kernels& k) { k.bias_gradient(small, large); });
  expect("attention: k", [&](Kernels& k) { k.attention(shape, large, small, large, large, large); });
  expect("attention_gradient: k", [&](Kernels& k) {
    k.attention_gradient(shape, large, small, small, large, large, small, large, small, small);
  });
  expect("add: b", [&](Kernels& k) { k.add(large, large, small); });
  expect("swiglu: up", [&](Kernels& k) { k.swiglu(large, large, small); });
  expect("swiglu_gradient: ", [&](Kernels& k) { k.swiglu_gradient(large, small, large, large, large); });
  expect("gelu: in", [&](Kernels& k) { k.gelu(large, small); });
  expect("gelu_gradient: ", [&](Kernels& k) { k.gelu_gradient(large, small, large); });
  expect("cross_entropy: losses", [&](Kernels& k) { k.cross_entropy(small, statistic, large, numbers); });
  expect("cross_entropy_gradient: ",
         [&](Kernels& k) { k.cross_entropy_gradient(small, large, statistic, numbers, 1.0); });
}

TEST(ReferenceShapes, OfHeadsThatDoNotDivideAreRefused) {
  Tensor x{DType::f32, 2, 6};

  const auto rotate = [&](std::int64_t heads, std::int64_t tokens) {
    return fault_of([&](Kernels& kernels) { kernels.rotate(x, heads, tokens, 0, 1e4, Kernels::Rotation::forward); });
  };

  EXPECT_THAT(rotate(2, 2), HasSubstr("no 2 heads of even size"));
  EXPECT_THAT(rotate(3, 4), HasSubstr("no whole number of sequences of 4"));
  EXPECT_EQ(rotate(3, 2), "");
}

TEST(ReferenceTables, NameATokenThatIsNotInTheVocabulary) {
  Tensor out{DType::f32, 2, 2};
  Tensor table{DType::f32, 5, 2};
  Tensor tokens{DType::i32, 1, 2, {4, 5}};

  const std::string fault = fault_of([&](Kernels& kernels) { kernels.embedding(out, tokens, table, {}, 2, 0); });

  EXPECT_THAT(fault, HasSubstr("token 5 of row 1 is not in the vocabulary of 5"));
}

TEST(ReferenceTables, NamePositionsBeyondTheTable) {
  Tensor out{DType::f32, 2, 2};
  Tensor table{DType::f32, 5, 2};
  Tensor positions{DType::f32, 3, 2};
  Tensor tokens{DType::i32, 1, 2, {4, 0}};

  const std::string fault = fault_of([&](Kernels& kernels) { kernels.embedding(out, tokens, table, positions, 2, 2); });

  EXPECT_THAT(fault, HasSubstr("positions 2..3 are not in the table of 3"));
}

TEST(ReferenceLoss, NamesATargetBeyondTheVocabulary) {
  Tensor logits{DType::f32, 1, 4};
  Tensor statistic{DType::f32, 1, 1};
  Tensor targets{DType::i32, 1, 1, {4}};

  const std::string fault =
      fault_of([&](Kernels& kernels) { kernels.cross_entropy(statistic, statistic, logits, targets); });

  EXPECT_THAT(fault, HasSubstr("target 4 of row 0"));
}

}  // namespace
}  // namespace penstock::test
