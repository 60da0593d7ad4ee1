// SPDX-License-Identifier: Apache-2.0
//
// The mathematics of a share of the vocabulary (schedule/vocabulary.hpp; methods 3.5): embedding, final norm, output
// layer and loss, cut by rows of the vocabulary over the ranks of a pipeline.
//
//        token table, head [V, h]               who has what else
//   rank 0    | rows 0 .. V/p      |   first: gathers embeddings, has the position table
//   rank 1    | rows V/p .. 2 V/p  |
//   ...       |                    |
//   rank p-1  | rows .. V          |   last: has the hidden states and the final norm
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/index.hpp"
#include "kernels/kernels.hpp"
#include "schedule/vocabulary.hpp"
#include "stage/stage.hpp"

namespace penstock {

/// The other ranks, while all of them are in the same call. Blocks until the memory may be reused.
class VocabularyPeers {
 public:
  virtual ~VocabularyPeers() = default;
  virtual void send(std::span<const std::byte> data, Rank to) = 0;
  virtual void receive(std::span<std::byte> data, Rank from) = 0;
  /// Both directions at once.
  virtual void exchange(std::span<const std::byte> out, Rank to, std::span<std::byte> in, Rank from) = 0;
};

/// What a share computes on.
struct VocabularyShape {
  StageShape run;          ///< any stage: model, sequences, tokens, slices and storage are those of all
  std::int32_t ranks = 1;  ///< of the pipeline
  Rank rank;               ///< that has the share
  Rank first;              ///< that has the first stage
  Rank last;               ///< that has the last stage
  VocabularyRows rows() const { return rows_of(rank); }
  VocabularyRows rows_of(Rank of) const { return rows_of_share(run.model.vocabulary, ranks, of); }
  bool is_first() const { return rank == first; }
  bool is_last() const { return rank == last; }
};

struct ShareLayouts;         // stage/vocabulary_layout.hpp
class ShareLayoutsByTokens;  // the same

/// Calls of one share, each on one slice; all ranks make the same call together. Holds no state between calls.
///
/// The embedding and its gradient, and the gradients of the norm and of the head, are those of an unshared model to the
/// bit, given the same gradients of logits and hidden states. The log-sum-exp of a row is formed in double from those
/// of the shares, in rank order, and is the same on all ranks; the gradient of the hidden states is the sum of the
/// shares' parts in rank order, rounded after each.
class VocabularyMath {
 public:
  /// @throws Error internal if there are more ranks than rows
  explicit VocabularyMath(const VocabularyShape& shape);
  const VocabularyShape& shape() const { return shape_; }

  /// The tensors of a kind of buffer, for the longest slice: parameters and gradients (those of parameters_of_share, in
  /// canonical order), tokens ("tokens" and "targets" of one whole micro-batch), logits (what forward keeps for
  /// backward), workspace; empty for others.
  BufferLayout layout(BufferKind kind) const;
  StageBytes bytes(const Kernels& kernels) const;
  /// The second gradient of a tied table, "head/weight" behind the others. Empty for an untied model.
  std::optional<TensorSlot> tied_head_gradient() const;

  /// EF. Needs parameters, tokens, workspace; on the first rank gives output: the input of stage 0 [rows, hidden].
  void embed(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const;
  /// VF. Needs parameters, targets, workspace; on the last rank input: the stream behind the last block [rows, hidden].
  /// What the backward needs goes to logits, or to the workspace where that is null. Returns the sum of the rows'
  /// losses, in double, rows ascending: the same on all ranks.
  double forward(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const;
  /// VF where only the logits of `wanted_row` are asked for: on the last rank they go to logits, [1, vocabulary] A.
  void form_wanted_logits(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const;
  /// VB. Needs parameters, targets, logits, workspace, adds to gradients; on the last rank needs input, gives
  /// input_gradient. The gradient is that of loss_scale x the sum of the losses.
  void backward(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers, double loss_scale) const;
  /// EB. Needs tokens, workspace, on the first rank output_gradient; adds to gradients.
  void embed_backward(Kernels& kernels, VocabularyPeers& peers, const StageBuffers& buffers) const;

 private:
  const ShareLayouts& begin_call(Kernels& kernels, const StageBuffers& buffers) const;
  std::int64_t first_position(Slice slice) const { return shape_.run.tokens_of(slice).begin; }

  VocabularyShape shape_;
  std::shared_ptr<const ShareLayoutsByTokens> layouts_;
};

}  // namespace penstock
