// SPDX-License-Identifier: Apache-2.0
//
// Where the tensors of a stage lie in its buffers. Computed once per stage; forward and backward turn slots into
// matrices.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "kernels/tensor.hpp"
#include "stage/stage.hpp"

namespace penstock {

/// The tensors of one transformer block, whichever buffer each lies in. [T, C] with T the rows of a slice, h hidden, f
/// ffn width, q and kv the widths of queries and keys. Those of the first two groups are made by the forward; what of
/// them is not kept for the backward tells formed_again.
enum class BlockTensor : std::uint8_t {
  input,           ///< [T, h], the residual stream before the block
  attention_norm,  ///< [T, h]
  query,
  key,
  value,      ///< [T, q], [T, kv], [T, kv]; query and key rotated (llama)
  attention,  ///< [T, q], the heads' outputs
  residual,   ///< [T, h], the stream after attention
  ffn_norm,   ///< [T, h]
  gate,
  up,      ///< [T, f]; gate: llama
  hidden,  ///< [T, f], swiglu(gate, up) or gelu(up)

  attention_norm_mean,
  attention_norm_inverse,  ///< A [1, T]; means: gpt2
  log_sum_exp,             ///< A [heads, T]
  ffn_norm_mean,
  ffn_norm_inverse,

  output_gradient,  ///< [T, h], at the block's output, so at the down projection's too
  gate_gradient,
  up_gradient,
  residual_gradient,  ///< [T, h], at `residual`, so at the attention output projection's too
  query_gradient,
  key_gradient,
  value_gradient,  ///< in key_value_gradients of type A

  hidden_gradient,    ///< [T, f]
  norm_gradient,      ///< [T, h], at either norm's output
  attention_gradient  ///< [T, q]
};
/// Every tensor of a buffer begins at a multiple of so many bytes.
inline constexpr std::int64_t slot_alignment = 64;
inline constexpr std::size_t block_tensor_count = 26;
/// Some of the tensors of a block.
class TensorSet {
 public:
  constexpr TensorSet() = default;
  constexpr TensorSet(std::initializer_list<BlockTensor> tensors) {
    for (const BlockTensor tensor : tensors) bits_ |= bit(tensor);
  }
  constexpr bool contains(BlockTensor tensor) const { return (bits_ & bit(tensor)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr void insert(BlockTensor tensor) { bits_ |= bit(tensor); }
  /// This set without the tensors of the other.
  friend constexpr TensorSet operator-(TensorSet set, TensorSet other) { return TensorSet{set.bits_ & ~other.bits_}; }
  friend constexpr TensorSet operator&(TensorSet set, TensorSet other) { return TensorSet{set.bits_ & other.bits_}; }

 private:
  constexpr explicit TensorSet(std::uint32_t bits) : bits_{bits} {}
  static constexpr std::uint32_t bit(BlockTensor tensor) { return 1U << static_cast<unsigned>(tensor); }

  std::uint32_t bits_ = 0;
};
static_assert(block_tensor_count <= 32);

/// What the forward of a block works with: its input, and all that it makes.
inline constexpr TensorSet forward_tensors{
    BlockTensor::input,
    BlockTensor::attention_norm,
    BlockTensor::query,
    BlockTensor::key,
    BlockTensor::value,
    BlockTensor::attention,
    BlockTensor::residual,
    BlockTensor::ffn_norm,
    BlockTensor::gate,
    BlockTensor::up,
    BlockTensor::hidden,
    BlockTensor::attention_norm_mean,
    BlockTensor::attention_norm_inverse,
    BlockTensor::log_sum_exp,
    BlockTensor::ffn_norm_mean,
    BlockTensor::ffn_norm_inverse,
};

/// Of these, what a forward of the stage does not keep: its backward forms it again, layer by layer, before it goes
/// through the layer (memory.recompute). With an output of an operation also its statistics. Keys and values of slices
/// are always kept, as later slices read them and add to their gradients.
TensorSet formed_again(const StageShape& shape);

inline constexpr std::size_t parameter_role_count = static_cast<std::size_t>(ParameterRole::head_weight) + 1;

/// One slot per tensor; those that are not in the buffer are empty (rows = 0).
using BlockSlots = std::array<TensorSlot, block_tensor_count>;
using ParameterSlots = std::array<TensorSlot, parameter_role_count>;

/// The final norm and the head of the last stage.
struct HeadSlots {
  TensorSlot input;            ///< [T, h], the residual stream after the last block
  TensorSlot norm;             ///< [T, h]
  TensorSlot mean;             ///< A [1, T], gpt2
  TensorSlot inverse;          ///< A [1, T]
  TensorSlot logits;           ///< A [T, vocabulary]
  TensorSlot log_sum_exp;      ///< A [1, T]
  TensorSlot losses;           ///< A [1, T]
  TensorSlot logits_gradient;  ///< [T, vocabulary]
};

/// Parameters or gradients of a stage.
struct ParameterLayout {
  BufferLayout buffer;
  std::vector<ParameterSlots> blocks;  ///< by layer of the stage
  ParameterSlots beside;               ///< embeddings, final norm
  TensorSlot head;                     ///< what the logits are formed with: head, or the table when tied
};

/// What is kept from forward to backward, or from backward_input to backward_weight.
struct KeptLayout {
  BufferLayout buffer;
  std::vector<BlockSlots> blocks;  ///< by layer of the stage
  HeadSlots head;
};

/// A part of the workspace. The tensors of the block and those of the head share memory, never used at once.
struct WorkLayout {
  BufferLayout buffer;
  std::array<TensorSlot, 2> stream;  ///< [T, h], the residual stream, or its gradient, between blocks
  BlockSlots block;
  HeadSlots head;
};

/// All that calls on slices of one length work with.
struct StageLayouts {
  /// `again`: what the backward forms again of each block.
  StageLayouts(const StageShape& shape, TensorSet again);
  StageShape shape;  ///< `tokens` are those of a slice, which counts as the whole
  TensorSet again;   ///< lies in the workspace, in weight_operands what a later W reads
  ParameterLayout parameters;
  ParameterLayout gradients;
  KeptLayout activations;  ///< and the slots of what is kept beside them, in `offloadable`
  BufferLayout offloadable;
  BufferLayout logits;
  KeptLayout weight_operands;
  KeptLayout key_values;           ///< keys and values of a slice, for later ones, where no activations are kept
  KeptLayout key_value_gradients;  ///< their gradients as later slices add them up
  WorkLayout forward_work;         ///< of a forward that keeps nothing; what one that keeps does not
  WorkLayout backward_work;
  BufferLayout stream_buffer;  ///< of input, output and their gradients
  TensorSlot stream;           ///< [T, h], the only tensor of each
  Bytes workspace() const;     ///< of both works, the kernels' scratch behind it not included
};

/// The layouts of a stage by slice; slices of one length share theirs.
class SliceLayouts {
 public:
  explicit SliceLayouts(const StageShape& shape);
  const StageLayouts& of(Slice slice) const;
  const StageLayouts& longest() const { return layouts_.rbegin()->second; }
  bool is_last(Slice slice) const { return slice.value() + 1 == shape_.slices; }
  std::int64_t first_position(Slice slice) const { return range_of(slice).begin; }
  /// Of the whole micro-batch.
  const BufferLayout& tokens() const { return tokens_; }

 private:
  const TokenRange& range_of(Slice slice) const;

  StageShape shape_;
  std::vector<TokenRange> ranges_;                // by slice
  std::map<std::int64_t, StageLayouts> layouts_;  // by tokens
  BufferLayout tokens_;
};

/// Type of statistics, logits and weight gradients.
DType accumulation_of(DType storage);

/// The two buffers of what a forward keeps. `offloadable` may be null where nothing lies in it.
struct KeptBuffers {
  std::byte* activations = nullptr;
  std::byte* offloadable = nullptr;
};

/// The tensor of a slot in the buffer that starts at `base`; empty if the slot is. @pre base is not null for a real
/// slot.
Matrix at(const TensorSlot& slot, std::byte* base);
ConstMatrix at(const TensorSlot& slot, const std::byte* base);
Matrix at(const TensorSlot& slot, const KeptBuffers& buffers);

}  // namespace penstock
