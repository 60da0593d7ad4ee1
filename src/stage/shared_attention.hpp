// SPDX-License-Identifier: Apache-2.0
//
// Attention of a block that ranks in lockstep share (SlimPipe's attention context exchange; methods, section 3.4). A
// rank whose slice has many keys before it hands the oldest on, with its queries, and gets the attention to them back
// as a part (AttentionPart); the backward pass hands on the same keys and values, and gets back their part of the
// queries' gradients and the gradients of the keys and values.
//
// All messages of a block are posted before the rank's own attention, which comes first, then what others handed on,
// then the merge. What the parts are merged in is fixed by the keys, the oldest first and the rank's own last; so the
// bits depend on who shares what, which the schedule says, and on nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.hpp"
#include "schedule/lockstep.hpp"
#include "stage/stage.hpp"

namespace penstock {

struct Block;

/// Messages between the ranks that share the attention of a slot. For the thread of the compute lane.
class AttentionMessages {
 public:
  virtual ~AttentionMessages() = default;
  /// Both return at once; the memory must live, and what is sent stay as it is, until waited for. From one rank to
  /// another messages match in order.
  virtual void send(Rank to, std::span<const std::byte> data) = 0;
  virtual void receive(Rank from, std::span<std::byte> data) = 0;
  /// Blocks, without spinning, until all that was to be received from the rank is there; until all is sent.
  virtual void wait_for(Rank from) = 0;
  virtual void wait_for_sends() = 0;
};

/// What one action shares, and with whom.
struct AttentionPartners {
  ActionShares shares;
  /// Layers of the stage, from its first, whose attention is shared: as many as every stage has.
  std::int64_t layers = 0;
  AttentionMessages* messages = nullptr;
};

/// What a block needs to share its attention.
struct SharedAttention {
  const AttentionPartners& partners;
  const StageShape& whole;      ///< of the stage
  std::span<std::byte> memory;  ///< sharing_bytes
};

/// Memory that one block's sharing takes at most, of either pass: parts, and what was handed on by others. Reused by
/// block after block.
Bytes sharing_bytes(const StageShape& shape);

/// In place of Kernels::attention and attention_gradient. @pre the block is shared
void share_attention_forward(const Block& block);
void share_attention_backward(const Block& block);

}  // namespace penstock
