// SPDX-License-Identifier: Apache-2.0
//
// Private to the kernels: what every implementation of attention asks of the chunks of keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernels.hpp"

namespace penstock {

/// Tokens that a chunk has of each sequence.
inline std::int64_t tokens_of(const AttentionShape& shape, const KeyValueChunk& chunk) {
  return chunk.k.rows / shape.sequences;
}

/// Whether later queries see more keys of the chunk than earlier ones.
inline bool is_masked(const AttentionShape& shape, std::span<const KeyValueChunk> chunks, std::size_t chunk) {
  return shape.causal && chunk + 1 == chunks.size();
}

/// @throws Error internal unless the chunks hold the shape's keys and values, in the type of q, and with causal
/// attention the newest has as many tokens as there are queries.
void check_chunks(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                  std::span<const KeyValueChunk> chunks);

/// The same, and the sums of the gradients: of every chunk, or of all but the newest.
void check_gradient_chunks(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                           std::span<const KeyValueChunk> chunks);

}  // namespace penstock
