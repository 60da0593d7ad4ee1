// SPDX-License-Identifier: Apache-2.0
//
// One call of a stage on one slice: its blocks in order, and what stands beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/kernels.hpp"
#include "stage/block.hpp"
#include "stage/layout.hpp"
#include "stage/shared_attention.hpp"
#include "stage/stage.hpp"

namespace penstock {

/// What every call works with.
struct StageCall {
  Kernels& kernels;
  const SliceLayouts& slices;
  const StageLayouts& layouts;  ///< of the slice
  const StageShape& shape;      ///< of the slice
  const StageBuffers& buffers;
  std::optional<SharedAttention> shared;  ///< where the action has partners

  bool is_last_slice() const { return slices.is_last(buffers.slice); }
  std::int64_t first_position() const { return slices.first_position(buffers.slice); }
  std::int64_t blocks() const { return shape.end.value() - shape.begin.value(); }
  const FamilyMath& family() const { return math_of(shape.model.family); }
  ConstParameterTensors parameters() const { return {layouts.parameters.beside, buffers.parameters}; }
  ParameterTensors gradients() const { return {layouts.gradients.beside, buffers.gradients}; }
  ConstMatrix head() const { return at(layouts.parameters.head, buffers.parameters); }
  /// Token or target numbers as a matrix. @throws Error internal if they are not there, naming them.
  ConstMatrix numbers(const std::int32_t* data, const char* name) const;
  /// Block `index` of the stage with its parameters, nothing else placed.
  Block block(std::int64_t index) const;
  /// The keys and values of the slices before in block `index`, which lie in `layout` of their buffers.
  std::vector<KeyValueChunk> earlier_chunks(KeptLayout StageLayouts::*layout, std::int64_t index) const;
};

/// What a forward leaves: all that the backward needs, or the result alone; recompute leaves all but the stage's
/// output.
enum class ForwardKind : std::uint8_t { keep, nothing, recompute };

/// Returns the sum of the rows' losses (last stage with targets; else 0).
double run_forward(const StageCall& call, ForwardKind kind);

/// Where the operands of the weight gradients go: with `at_once` they lie in the workspace, and each block's weight
/// gradients follow its input gradient; else they go to weight_operands.
enum class WeightPass : std::uint8_t { at_once, later };

void run_backward_input(const StageCall& call, double loss_scale, WeightPass weights);
/// The products of the head, then of the blocks from the last to the first, in the order of weight_products.
std::int64_t count_weight_products(const StageShape& shape);
std::vector<std::int64_t> sizes_of_weight_products(const StageLayouts& layouts);
void run_backward_weight(const StageCall& call, ProductRange products);

}  // namespace penstock
