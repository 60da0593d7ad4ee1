// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "kernels/kernels.hpp"
#include "kernels/tensor.hpp"
#include "memory/plan.hpp"
#include "model/parameters.hpp"
#include "model/spec.hpp"
#include "schedule/cutting.hpp"
#include "schedule/lockstep.hpp"
#include "schedule/recompute.hpp"
#include "schedule/weight_parts.hpp"

namespace penstock {

/// What a stage computes on: a range of layers, and the tokens of one micro-batch, slice by slice.
struct StageShape {
  ModelSpec model;
  Layer begin;
  Layer end;
  bool first = true;            ///< has the embedding
  bool last = true;             ///< has the final norm, the head and the loss
  std::int64_t sequences = 1;   ///< of a micro-batch
  std::int64_t tokens = 1;      ///< of each sequence
  DType storage = DType::bf16;  ///< of parameters and activations; f64 for checks with the reference kernels
  std::int32_t slices = 1;      ///< that each sequence is cut into
  double key_cost = 0;          ///< see SequenceCut
  double offload_ratio = 0;     ///< share of what a forward keeps that lies in `offloadable`, as near as tensors allow
  SharingLimits sharing;        ///< of the rank, where its schedule exchanges attention
  /// Where a forward with Keep::nothing leaves the residual stream before a layer, for a backward pass that is cut
  /// otherwise: layers of this stage, ascending.
  std::vector<Layer> checkpoints;
  /// What a forward with Keep::activations keeps; the backward forms the rest again, layer by layer. With `full` it is
  /// all, as with `none`: recompute fills it.
  Recompute recompute = Recompute::none;
  /// Of a whole micro-batch.
  std::int64_t rows() const { return sequences * tokens; }
  SequenceCut cut() const { return {tokens, slices, key_cost}; }
  TokenRange tokens_of(Slice slice) const { return cut().slice(slice); }
};

/// A named tensor inside a buffer.
struct TensorSlot {
  std::string name;  ///< "layers/3/query", for errors and for the table of a plan
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Bytes offset{0};           ///< from the buffer's start, a multiple of 64
  bool offloadable = false;  ///< of what a forward keeps: lies in `offloadable` and not in `activations`
};

/// The tensors of one kind of buffer, and its size (a multiple of buffer_alignment).
struct BufferLayout {
  std::vector<TensorSlot> tensors;
  Bytes bytes{0};
};

struct AttentionPartners;  // stage/shared_attention.hpp

/// What a call reads of an earlier slice of the same stage and micro-batch, and adds to.
struct EarlierSlice {
  /// Its activations; in a forward with Keep::nothing its key_values.
  const std::byte* keys_and_values = nullptr;
  std::byte* gradients = nullptr;  ///< layout: key_value_gradients; backward calls
};

/// The memory of one call, on one slice; which are needed is said at the calls. Null where a call does not need one.
/// [rows, ...] with the rows of the slice: sequences slowest, then the slice's tokens.
struct StageBuffers {
  Slice slice;
  const std::byte* parameters = nullptr;       ///< layout: parameters, canonical order of parameters_of_stage
  std::byte* gradients = nullptr;              ///< layout: gradients, the same order, type A
  const std::byte* input = nullptr;            ///< [rows, hidden] S; not for the first stage
  std::byte* output = nullptr;                 ///< [rows, hidden] S; not for the last stage
  std::byte* activations = nullptr;            ///< kept from the forward (or from recompute) to the backward
  std::byte* offloadable = nullptr;            ///< offload_ratio > 0: the part of it that may wait on the host
  std::byte* logits = nullptr;                 ///< last stage: logits A, log-sum-exp A, and what else the loss keeps
  const std::byte* output_gradient = nullptr;  ///< [rows, hidden] S; not for the last stage
  std::byte* input_gradient = nullptr;         ///< [rows, hidden] S; not for the first stage
  std::byte* weight_operands = nullptr;        ///< kept from backward_input to backward_weight
  std::byte* workspace = nullptr;              ///< `workspace_bytes`, contents not kept between calls
  const std::int32_t* tokens = nullptr;        ///< first stage: [sequences, tokens of the slice]
  const std::int32_t* targets = nullptr;       ///< last stage: as tokens, below 0: not counted
  std::int64_t wanted_row = 0;                 ///< last stage without targets: the row whose logits are wanted
  std::byte* key_values = nullptr;             ///< Keep::nothing, not the last slice: keys and values for later slices
  std::byte* key_value_gradients = nullptr;    ///< backward, not the last slice: A, what later slices have given
  std::vector<EarlierSlice> earlier;           ///< all slices before `slice`, ascending
  std::vector<std::byte*> checkpoints;         ///< Keep::nothing: [rows, hidden] S, of the shape's checkpoints

  /// Forward and backward: with whom attention is shared; null: with nobody.
  const AttentionPartners* partners = nullptr;
};

class SliceLayouts;  // stage/layout.hpp

/// The mathematics of one stage, for any Kernels (design, section 5). Holds no state between calls.
///
/// The bits of a call depend on the shape and the kernels alone. `backward` is backward_input followed by
/// backward_weight, to the bit; `recompute` leaves in `activations` (and `logits`) the bits that `forward` would have.
///
/// Slices of a micro-batch go forward (and are recomputed) from the first to the last, each attending to the keys and
/// values of those before it; and backward from the last to the first, each adding to the gradients of those keys and
/// values. The first backward sets these sums to zero, and each takes what its own have become.
///
/// With partners a call sends and receives messages, and returns when they have done their part: those of a slot must
/// run at one time. A recompute has none.
class StageMath {
 public:
  explicit StageMath(const StageShape& shape);
  const StageShape& shape() const { return shape_; }

  /// The tensors of a kind of buffer, for the longest slice; empty for those that the stage does not have (input of the
  /// first, ...). Tokens: "tokens" on the first stage, "targets" on the last, of one whole micro-batch. Workspace: the
  /// stage's own part without the kernels' scratch; its tensors belong to different calls and overlap. Gradients: see
  /// tied_head_gradient.
  BufferLayout layout(BufferKind kind) const;
  /// Bytes of each kind, the workspace including the kernels' scratch: what the memory plan takes.
  StageBytes bytes(const Kernels& kernels) const;

  /// A stage that is first and last, with a tied head, has two gradients of its one table: "embedding/token/weight" of
  /// the embedding, and this one of the head, "head/weight" at the end of its gradients. The table's gradient is
  /// embedding + head, added once, as where they lie on two ranks. Empty for any other stage.
  std::optional<TensorSlot> tied_head_gradient() const;
  /// Where in the workspace a forward of the last stage with Keep::nothing leaves its logits, until the next call.
  TensorSlot logits_in_workspace() const;

  /// Whether a forward keeps its activations for the backward, or only the stage's input (recompute: full; evaluation).
  enum class Keep : std::uint8_t { activations, nothing };

  /// Needs parameters, input or tokens, output (not the last), activations (Keep::activations), workspace; the last
  /// stage also logits and targets. Returns in `loss_sum` (last stage; may be null) the sum of the rows' losses, in
  /// double, rows ascending.
  ///
  /// With Keep::nothing the last stage's logits go to buffers.logits if it is given, else to the workspace. Without
  /// targets no loss is formed, `loss_sum` is 0, and of the logits those of `wanted_row` alone (generation): they go to
  /// buffers.logits, [1, vocabulary] A; if that is null, none are wanted.
  void forward(Kernels& kernels, const StageBuffers& buffers, Keep keep, double* loss_sum) const;
  /// Fills activations (and logits; needs targets) again from the input. The stage's output is not formed again.
  void recompute(Kernels& kernels, const StageBuffers& buffers) const;
  /// Needs parameters, input or tokens, what the forward kept, output_gradient or (last) logits and targets, and gives
  /// input_gradient (not the first) and adds to gradients those of norms, biases and tables; the matrix products'
  /// operands go to weight_operands. The gradient is that of loss_scale x the sum of the rows' losses.
  void backward_input(Kernels& kernels, const StageBuffers& buffers, double loss_scale) const;
  /// Adds the matrix weight gradients to gradients, from activations and weight_operands: all, or those of some of the
  /// weight_products(). Each matrix has a product of its own, so that any order of products gives the same bits.
  void backward_weight(Kernels& kernels, const StageBuffers& buffers) const;
  void backward_weight(Kernels& kernels, const StageBuffers& buffers, ProductRange products) const;
  /// Matrix products of a backward_weight: the head's (last stage), then the layers' from the last to the first, of
  /// each down, up (and gate), attention output, query, key and value.
  std::int64_t weight_products() const;
  /// Numbers of the matrix whose gradient each of them gives: what their FLOPs are proportional to.
  std::vector<std::int64_t> weight_product_sizes() const;
  /// Both; the operands lie in the workspace, one layer's at a time, weight_operands is not needed.
  void backward(Kernels& kernels, const StageBuffers& buffers, double loss_scale) const;

 private:
  StageShape shape_;
  std::shared_ptr<const SliceLayouts> layouts_;
};

}  // namespace penstock
