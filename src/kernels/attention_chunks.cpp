// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_chunks.hpp"

#include "base/error.hpp"

namespace penstock {
namespace {

void expect_part(std::string_view operation, std::string_view operand, const ConstMatrix& matrix,
                 const ConstMatrix& like, DType type) {
  require(matrix.rows == like.rows && matrix.columns == like.columns && matrix.stride >= matrix.columns,
          "{}: {} is {} x {}, expected {} x {}", operation, operand, matrix.rows, matrix.columns, like.rows,
          like.columns);
  require(matrix.type == type, "{}: {} has another element type than the operation expects", operation, operand);
}

}  // namespace

void check_chunks(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                  std::span<const KeyValueChunk> chunks) {
  require(shape.sequences > 0 && !chunks.empty(), "{}: {} sequences and {} chunks of keys", operation, shape.sequences,
          chunks.size());
  require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "{}: {} heads cannot share {} key heads", operation,
          shape.heads, shape.kv_heads);
  std::int64_t keys = 0;
  for (const KeyValueChunk& chunk : chunks) {
    ConstMatrix whole = chunk.k;
    whole.rows = chunk.k.rows / shape.sequences * shape.sequences;
    whole.columns = shape.kv_heads * shape.head_size;
    expect_part(operation, "k", chunk.k, whole, q.type);
    expect_part(operation, "v", chunk.v, whole, q.type);
    const std::int64_t end = chunk.first_token + tokens_of(shape, chunk);
    require(chunk.first_token >= 0 && end * shape.sequences <= chunk.k.rows,
            "{}: tokens {} to {} of a chunk with {} rows of {} sequences", operation, chunk.first_token, end,
            chunk.k.rows, shape.sequences);
    keys += tokens_of(shape, chunk);
  }
  require(keys == shape.key_tokens, "{}: k has {} tokens of each sequence in {} chunks, expected {}", operation, keys,
          chunks.size(), shape.key_tokens);
  const std::int64_t newest = tokens_of(shape, chunks.back());
  require(!shape.causal || newest == shape.query_tokens,
          "{}: causal attention needs as many queries as keys of the newest chunk, got {} and {}", operation,
          shape.query_tokens, newest);
}

void check_gradient_chunks(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                           std::span<const KeyValueChunk> chunks, NewestSums newest) {
  check_chunks(operation, shape, q, chunks);
  const DType sums = q.type == DType::f64 ? DType::f64 : DType::f32;
  for (const KeyValueChunk& chunk : chunks) {
    const bool may_lack = newest == NewestSums::may_be_empty && &chunk == &chunks.back();
    if (may_lack && !chunk.k_gradient && !chunk.v_gradient) continue;
    expect_part(operation, "the sum of k gradients", chunk.k_gradient, chunk.k, sums);
    expect_part(operation, "the sum of v gradients", chunk.v_gradient, chunk.v, sums);
  }
}

}  // namespace penstock
