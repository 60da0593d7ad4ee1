// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "kernels/host/attention_blocks.hpp"

namespace penstock::host {
namespace {

struct ForwardCall {
  const AttentionShape& shape;
  Matrix out;
  Matrix log_sum_exp;
  ConstMatrix q;
  std::span<const KeyValueChunk> chunks;
};

/// One block of queries of one head of one sequence.
template <class S, class P>
void forward_block(const ForwardCall& call, std::int64_t sequence, std::int64_t head, std::int64_t first,
                   Context context) {
  const AttentionShape& shape = call.shape;
  const std::int64_t size = shape.head_size;
  const std::int64_t rows = std::min(query_block, shape.query_tokens - first);
  const std::int64_t key_column = head / (shape.heads / shape.kv_heads) * size;
  const std::int64_t row = sequence * shape.query_tokens + first;
  auto& scratch = context.scratch;
  auto* const scores = scratch.take<float>(query_block * forward_key_block);
  auto* const probabilities = scratch.take<P>(query_block * forward_key_block);
  auto* const result = scratch.take<float>(query_block * size);
  auto* const maximum = scratch.take<float>(query_block);
  auto* const sum = scratch.take<float>(query_block);
  P* const q_copy = take_copy<S, P>(context, query_block * size);
  P* const k_copy = take_copy<S, P>(context, forward_key_block * size);
  P* const v_copy = take_copy<S, P>(context, forward_key_block * size);
  const auto q = part<S, P>(context, call.q, row, rows, head * size, size, q_copy);
  std::fill_n(maximum, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, rows, 0.0F);
  std::fill_n(result, rows * size, 0.0F);
  for (std::size_t i = 0; i < call.chunks.size(); ++i) {
    const KeyValueChunk& chunk = call.chunks[i];
    const bool masked = is_masked(shape, call.chunks, i);
    const std::int64_t chunk_row = first_row_of(shape, chunk, sequence);
    const std::int64_t keys = masked ? first + rows : tokens_of(shape, chunk);
    for (std::int64_t begin = 0; begin < keys; begin += forward_key_block) {
      const std::int64_t columns = std::min(forward_key_block, keys - begin);
      const auto k = part<S, P>(context, chunk.k, chunk_row + begin, columns, key_column, size, k_copy);
      const auto v = part<S, P>(context, chunk.v, chunk_row + begin, columns, key_column, size, v_copy);
      multiply(context, {scores, columns}, q, k, Orientation::right_transposed, false);
      const ScoreBlock block{rows, columns, masked ? first - begin + 1 : columns, scale_of(shape)};
      functions_of<P>(*context.table)
          .softmax_block(block, {probabilities, columns}, {scores, columns}, maximum, sum, {result, size}, size);
      multiply(context, {result, size}, {probabilities, columns, rows, columns}, v, Orientation::plain, true);
    }
  }
  const auto finish = [&]<class Out>(Out* out) {
    functions_of<Out>(*context.table)
        .softmax_finish({rows, size}, {out + row * call.out.stride + head * size, call.out.stride}, {result, size},
                        maximum, sum, call.log_sum_exp.as<float>() + head * call.log_sum_exp.stride + row);
  };
  if (call.out.type == DType::f32) return finish(call.out.as<float>());
  finish(call.out.as<S>());
}

}  // namespace

std::int64_t attention_scratch_bytes(const AttentionShape& shape) {
  const auto floats = [](std::int64_t count) {
    return round_up(count * std::int64_t{sizeof(float)}, scratch_alignment);
  };
  const std::int64_t size = shape.head_size;
  const std::int64_t forward = 2 * floats(query_block * forward_key_block) + 2 * floats(query_block) +
                               2 * floats(query_block * size) + 2 * floats(forward_key_block * size) +
                               product_scratch_bytes(query_block, forward_key_block, size);
  const std::int64_t newest = shape.causal ? shape.query_tokens : shape.key_tokens;
  const std::int64_t backward = 2 * floats(newest * size) + floats(shape.query_tokens * size) +
                                floats(shape.query_tokens) + 4 * floats(query_block * backward_key_block) +
                                2 * floats(query_block * size) + 2 * floats(backward_key_block * size) +
                                product_scratch_bytes(query_block, backward_key_block, size);
  return std::max(forward, backward);
}

void HostKernels::attention(const AttentionShape& shape, Matrix out, Matrix log_sum_exp, ConstMatrix q,
                            std::span<const KeyValueChunk> chunks) {
  expect_attention("attention", shape, q, log_sum_exp);
  check_chunks("attention", shape, q, chunks);
  expect("attention", "out", out, q.rows, q.columns, out.type == DType::f32 ? DType::f32 : q.type);
  const ForwardCall call{shape, out, log_sum_exp, q, chunks};
  const std::int64_t blocks = divide_up(shape.query_tokens, query_block);
  with_operands("attention", q.type, multiplies_bf16_, [&]<class S, class P>() {
    workers_->for_each(shape.sequences * shape.heads * blocks, [&](std::int64_t task) {
      const std::int64_t block = task % blocks;
      const std::int64_t head = task / blocks % shape.heads;
      forward_block<S, P>(call, task / blocks / shape.heads, head, block * query_block,
                          Context{rows_, &products(), task_scratch()});
    });
  });
}

}  // namespace penstock::host
