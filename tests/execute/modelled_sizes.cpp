// SPDX-License-Identifier: Apache-2.0
//
// What the model of cost says that a stage keeps against what the stage keeps.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "cost/stage_sizes.hpp"
#include "model/options.hpp"
#include "schedule/partition.hpp"
#include "stage/stage.hpp"

namespace penstock {
namespace {

struct SizeCase {
  Family family = Family::llama;
  Recompute recompute = Recompute::none;
  std::int32_t slices = 1;
};

std::string name_of(const SizeCase& value) {
  return std::string{deck_name(value.family)} + "_" + std::string{deck_name(value.recompute)} + "_" +
         std::to_string(value.slices);
}

void PrintTo(const SizeCase& value, std::ostream* stream) {
  *stream << name_of(value);
}

std::vector<SizeCase> size_cases() {
  std::vector<SizeCase> cases;
  for (const Family family : {Family::llama, Family::gpt2}) {
    for (const auto& [recompute, name] : enum_names(Recompute{})) {
      for (const std::int32_t slices : {1, 4}) cases.push_back({family, recompute, slices});
    }
  }
  return cases;
}

class ModelledSizes : public testing::TestWithParam<SizeCase> {
 protected:
  static ModelSpec model() {
    const bool is_llama = GetParam().family == Family::llama;
    return {.family = GetParam().family,
            .layers = 4,
            .hidden = 256,
            .heads = 8,
            .kv_heads = is_llama ? 4 : 8,
            .head_size = 32,
            .ffn = 704,
            .positions = 512};
  }

  /// The first of two stages: all inputs of its layers are among its activations.
  static StageShape stage() {
    return {.model = model(),
            .begin = Layer{0},
            .end = Layer{2},
            .first = true,
            .last = false,
            .tokens = 512,
            .slices = GetParam().slices,
            .recompute = GetParam().recompute};
  }

  static StageBytes modelled() {
    CostShape shape;
    shape.model = model();
    shape.forward_stages = even_partition(4, 2).stages;
    shape.recompute = PerStage<Recompute>(2, GetParam().recompute);
    shape.sequence = 512;
    shape.slices = GetParam().slices;
    shape.pipeline = 2;
    return stage_bytes(shape)[Stage{0}];
  }

  /// Statistics left out: the published formulas do not count them.
  static std::int64_t laid_out(BufferKind kind) {
    std::int64_t bytes = 0;
    for (const TensorSlot& slot : StageMath{stage()}.layout(kind).tensors) {
      if (slot.type == DType::bf16) bytes += slot.rows * slot.columns * size_of(slot.type);
    }
    return bytes;
  }
};

TEST_P(ModelledSizes, AreThoseOfTheStage) {
  for (const BufferKind kind : {BufferKind::activations, BufferKind::weight_operands}) {
    EXPECT_EQ(modelled()[static_cast<std::size_t>(kind)].value, laid_out(kind)) << name_of(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(, ModelledSizes, testing::ValuesIn(size_cases()),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace penstock
