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
  return chunk.tokens < 0 ? chunk.k.rows / shape.sequences : chunk.tokens;
}

/// The row of a chunk's first token of a sequence, in k and v and in their sums.
inline std::int64_t first_row_of(const AttentionShape& shape, const KeyValueChunk& chunk, std::int64_t sequence) {
  return sequence * (chunk.k.rows / shape.sequences) + chunk.first_token;
}

/// Whether later queries see more keys of the chunk than earlier ones.
inline bool is_masked(const AttentionShape& shape, std::span<const KeyValueChunk> chunks, std::size_t chunk) {
  return shape.causal && chunk + 1 == chunks.size();
}

/// @throws Error internal unless the chunks hold the shape's keys and values, in the type of q, and with causal
/// attention the newest has as many tokens as there are queries.
void check_chunks(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                  std::span<const KeyValueChunk> chunks);

/// The same, and the sums of the gradients: of every chunk, or of all but the newest where that may be.
enum class NewestSums : std::uint8_t { may_be_empty, are_needed };
void check_gradient_chunks(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                           std::span<const KeyValueChunk> chunks, NewestSums newest);

}  // namespace penstock
