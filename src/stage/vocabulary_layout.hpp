// SPDX-License-Identifier: Apache-2.0
//
// Where the tensors of a share of the vocabulary lie. T: rows of a slice, h: hidden, R: the share's rows, p: ranks.
#pragma once

#include <cstdint>
#include <map>

#include "stage/layout.hpp"
#include "stage/vocabulary.hpp"

namespace penstock {

/// Parameters of a share, or their gradients; slots that the share does not have are empty.
struct ShareParameters {
  BufferLayout buffer;
  TensorSlot table;      ///< [R, h]
  TensorSlot positions;  ///< [positions, h], on the first rank of gpt2
  TensorSlot norm_weight;
  TensorSlot norm_bias;  ///< [1, h], on the last rank
  TensorSlot head;       ///< [R, h]; tied: the table, but among the gradients one of its own
};

/// What VF keeps for VB.
struct KeptOutput {
  TensorSlot hidden;       ///< [T, h], behind the final norm
  TensorSlot mean;         ///< A [1, T], last rank, gpt2
  TensorSlot inverse;      ///< A [1, T], last rank
  TensorSlot logits;       ///< A [T, R]
  TensorSlot log_sum_exp;  ///< A [1, T], of the whole vocabulary
};

/// What each call has in the workspace; the calls share its memory.
struct ShareWork {
  TensorSlot packed;   ///< EF: [T, h], embeddings by rank, in each by token; on other ranks the share's own alone
  TensorSlot indices;  ///< EF: i32 [1, T], rows of the share's tokens
  TensorSlot places;   ///< EF: i32 [1, T], where each token's embedding lies among the packed ones

  KeptOutput kept;        ///< VF of a forward that keeps nothing
  TensorSlot statistics;  ///< VF: A [2 p, T], of each rank the log-sum-exps and the losses of its share
  TensorSlot targets;     ///< VF, VB: i32 [1, T], as the share sees them

  TensorSlot logits_gradient;  ///< VB: [T, R]
  TensorSlot part;             ///< VB: [T, h], the share's part of the gradient of the hidden states
  TensorSlot sum;              ///< VB: [T, h]
  TensorSlot arriving;         ///< VB: [T, h]

  TensorSlot gradient;  ///< EB: [T, h], of the embeddings, on other ranks than the first
  TensorSlot own;       ///< EB: i32 [1, T], tokens as the share sees them
};

/// All that calls on slices of one length work with.
struct ShareLayouts {
  /// @param slice with the tokens of this length
  ShareLayouts(const VocabularyShape& shape, Slice slice);
  StageShape run;  ///< `tokens` are those of the slice, which counts as the whole
  ShareParameters parameters;
  ShareParameters gradients;
  BufferLayout kept_buffer;
  KeptOutput kept;
  BufferLayout work_buffer;
  ShareWork work;
  TensorSlot stream;  ///< [T, h]: the streams at both ends of the model
};

/// The layouts of a share for each length that slices have.
class ShareLayoutsByTokens {
 public:
  explicit ShareLayoutsByTokens(const VocabularyShape& shape) {
    for (const Slice slice : all<Slice>(shape.run.slices)) {
      layouts_.try_emplace(shape.run.tokens_of(slice).count, shape, slice);
    }
  }
  const ShareLayouts& of(std::int64_t tokens) const { return layouts_.at(tokens); }
  const ShareLayouts& longest() const { return layouts_.rbegin()->second; }

 private:
  std::map<std::int64_t, ShareLayouts> layouts_;
};

}  // namespace penstock
