// SPDX-License-Identifier: Apache-2.0
//
// The mathematics of one transformer block, written once; `FamilyMath` has what differs between the families.
//
//   a = norm(x)    q, k, v = a Wq^T, a Wk^T, a Wv^T    o = attention(q, k, v)    r = x + o Wo^T
//   n = norm(r)    h = swiglu(n Wg^T, n Wu^T) or gelu(n Wu^T)                    y = r + h Wd^T
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernels.hpp"
#include "schedule/weight_parts.hpp"
#include "stage/layout.hpp"

namespace penstock {

class FamilyMath;
struct SharedAttention;  // stage/shared_attention.hpp

/// The tensors of a block as matrices, gathered from the buffers that hold them.
class BlockTensors {
 public:
  /// Takes the tensors that `slots` has from the buffer at `base`, in place of earlier ones.
  void place(const BlockSlots& slots, std::byte* base);
  void place(const BlockSlots& slots, const KeptBuffers& buffers);
  Matrix operator[](BlockTensor tensor) const { return tensors_[static_cast<std::size_t>(tensor)]; }

 private:
  std::array<Matrix, block_tensor_count> tensors_;
};

/// Parameters or their gradients, found by role. Empty for a role that the family does not have.
class ParameterTensors {
 public:
  ParameterTensors() = default;
  ParameterTensors(const ParameterSlots& slots, std::byte* base) : slots_{&slots}, base_{base} {}
  Matrix operator[](ParameterRole role) const { return at((*slots_)[static_cast<std::size_t>(role)], base_); }

 private:
  const ParameterSlots* slots_ = nullptr;
  std::byte* base_ = nullptr;
};

/// The same, read only.
class ConstParameterTensors {
 public:
  ConstParameterTensors(const ParameterSlots& slots, const std::byte* base) : slots_{&slots}, base_{base} {}
  ConstMatrix operator[](ParameterRole role) const { return at((*slots_)[static_cast<std::size_t>(role)], base_); }

 private:
  const ParameterSlots* slots_;
  const std::byte* base_;
};

/// One block in one call: what it works with, and where the residual stream enters and leaves it. Gradients are there
/// in backward calls only.
struct Block {
  Kernels& kernels;
  const StageShape& shape;
  const FamilyMath& family;
  ConstParameterTensors parameters;
  ParameterTensors gradients;
  BlockTensors tensors;
  ConstMatrix input;                   ///< x
  Matrix output;                       ///< y; empty: not wanted
  ConstMatrix output_gradient;         ///< dy
  Matrix input_gradient;               ///< dx
  std::int64_t first_position = 0;     ///< of the slice in its sequences
  std::vector<KeyValueChunk> earlier;  ///< keys and values of the slices before
  Matrix later_key_gradient;           ///< what the slices behind gave to the block's own keys and values; empty: none
  Matrix later_value_gradient;
  const SharedAttention* shared = nullptr;  ///< with other ranks; null: with none

  Matrix operator[](BlockTensor tensor) const { return tensors[tensor]; }
};

/// Of the block's queries over the keys of all its chunks.
AttentionShape attention_shape_of(const Block& block);
/// The keys and values that the block's queries see: those of earlier slices, then its own.
std::vector<KeyValueChunk> chunks_of(const Block& block);

void forward(const Block& block);
/// Those of the tensors of the forward again, from what is there of the others, by the same operations: the bits are
/// the same, unless the forward shared its attention with other ranks: here the block forms it alone. What one
/// operation makes belongs together.
void form_again(const Block& block, TensorSet tensors);
/// dx from dy; adds the gradients of norms and biases, fills the operands of the weight gradients.
void backward_input(const Block& block);
/// Adds the gradients of the block's matrices, or of some of them, numbered in the order of weight_products.
void backward_weight(const Block& block);
void backward_weight(const Block& block, ProductRange products);

/// A matrix whose gradient is out_gradient^T in.
struct WeightProduct {
  ParameterRole weight;
  BlockTensor out_gradient;
  BlockTensor in;
};
/// The products that give the gradients of a block's matrices, in the order in which a backward has their operands.
std::vector<WeightProduct> weight_products(const FamilyMath& family);

/// A norm and its gradient; `mean` and `bias` are empty for RMSNorm.
struct Norm {
  ConstMatrix in;
  Matrix out;
  Matrix mean;
  Matrix inverse;
  ConstMatrix weight;
  ConstMatrix bias;
};
struct NormGradient {
  Matrix in;  ///< round(residual + round(gradient through the norm))
  ConstMatrix out;
  ConstMatrix residual;  ///< empty: no residual
  Matrix weight;
  Matrix bias;
};

/// What differs between gpt2 and llama.
class FamilyMath {
 public:
  virtual ~FamilyMath() = default;
  virtual void norm(Kernels& kernels, const Norm& norm, double epsilon) const = 0;
  virtual void norm_gradient(Kernels& kernels, const Norm& norm, const NormGradient& gradient) const = 0;
  /// Turns queries or keys by their positions, or their gradients back.
  virtual void rotate(const Block& block, BlockTensor tensor, Kernels::Rotation rotation) const = 0;
  /// ffn_norm -> hidden.
  virtual void feed_forward(const Block& block) const = 0;
  /// hidden_gradient -> norm_gradient, and the operands on the way.
  virtual void feed_forward_gradient(const Block& block) const = 0;
  virtual std::vector<WeightProduct> feed_forward_weight_products() const = 0;
};

const FamilyMath& llama_math();
const FamilyMath& gpt2_math();
const FamilyMath& math_of(Family family);

/// out = in W^T (+ bias) with the weight and bias of these roles.
void product(const Block& block, BlockTensor out, BlockTensor in, ParameterRole weight, ParameterRole bias);
/// Adds the bias gradient, where the family has the bias.
void product_bias_gradient(const Block& block, ParameterRole bias, ConstMatrix out_gradient);

}  // namespace penstock
