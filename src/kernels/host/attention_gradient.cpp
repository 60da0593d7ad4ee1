// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/host/attention_blocks.hpp"

namespace penstock::host {

/// What the tasks of a gradient, or of a part of one, have in common.
struct BackwardCall {
  const AttentionShape& shape;
  Matrix dq;  ///< of type float for a part
  Matrix dk;  ///< empty for a part, as is dv: all chunks have sums
  Matrix dv;
  ConstMatrix out_gradient;
  ConstMatrix out;    ///< empty for a part, which is given
  ConstMatrix shift;  ///< this in its place
  ConstMatrix log_sum_exp;
  ConstMatrix q;
  std::span<const KeyValueChunk> chunks;

  bool is_part() const { return !dk; }
  const KeyValueChunk& newest() const { return chunks.back(); }
  std::int64_t newest_tokens() const { return tokens_of(shape, newest()); }
};

namespace {

/// The accumulators and work space of one key head of one sequence.
template <class P>
struct BackwardMemory {
  float* dk;  ///< [tokens of the newest chunk, head_size]; those of earlier chunks are their sums
  float* dv;
  float* dq;      ///< [query_tokens, head_size], of the query head at hand
  float* shift;   ///< [query_tokens]: out_gradient · out
  float* scores;  ///< [query_block, backward_key_block]
  float* probability_gradients;
  P* probabilities;
  P* score_gradients;
  P* q_copy;
  P* gradient_copy;
  P* k_copy;
  P* v_copy;
};

/// The newest chunk's gradients start from what its sums have already.
void start_newest(const Context& context, const Matrix& sums, std::int64_t row, std::int64_t column, Block block,
                  float* gradient) {
  if (sums) {
    context.table->f32.widen(block, {gradient, block.columns},
                             {sums.as<float>() + row * sums.stride + column, sums.stride});
  } else {
    std::fill_n(gradient, block.rows * block.columns, 0.0F);
  }
}

template <class S, class P>
BackwardMemory<P> take_backward_memory(const BackwardCall& call, Context& context) {
  const AttentionShape& shape = call.shape;
  const std::int64_t size = shape.head_size;
  constexpr std::int64_t block = query_block * backward_key_block;
  auto& scratch = context.scratch;
  BackwardMemory<P> memory{};
  if (!call.is_part()) {
    memory.dk = scratch.take<float>(call.newest_tokens() * size);
    memory.dv = scratch.take<float>(call.newest_tokens() * size);
  }
  memory.dq = scratch.take<float>(shape.query_tokens * size);
  memory.shift = scratch.take<float>(shape.query_tokens);
  memory.scores = scratch.take<float>(block);
  memory.probability_gradients = scratch.take<float>(block);
  memory.probabilities = scratch.take<P>(block);
  memory.score_gradients = scratch.take<P>(block);
  memory.q_copy = take_copy<S, P>(context, query_block * size);
  memory.gradient_copy = take_copy<S, P>(context, query_block * size);
  memory.k_copy = take_copy<S, P>(context, backward_key_block * size);
  memory.v_copy = take_copy<S, P>(context, backward_key_block * size);
  return memory;
}

/// A chunk as one key head of one sequence sees it: its first row and column, and where its gradients add up.
struct ChunkHead {
  const KeyValueChunk* chunk;
  std::int64_t tokens;
  std::int64_t row;
  std::int64_t column;
  bool masked;
  Rows<float> dk;
  Rows<float> dv;
};

template <class P>
ChunkHead chunk_head(const BackwardCall& call, std::size_t index, std::int64_t sequence, std::int64_t column,
                     const BackwardMemory<P>& memory) {
  const KeyValueChunk& chunk = call.chunks[index];
  const std::int64_t tokens = tokens_of(call.shape, chunk);
  const std::int64_t row = first_row_of(call.shape, chunk, sequence);
  const std::int64_t size = call.shape.head_size;
  ChunkHead head{&chunk,           tokens, row, column, is_masked(call.shape, call.chunks, index), {memory.dk, size},
                 {memory.dv, size}};
  if (index + 1 == call.chunks.size() && !call.is_part()) return head;
  const auto sums = [&](const Matrix& matrix) {
    return Rows<float>{matrix.as<float>() + row * matrix.stride + column, matrix.stride};
  };
  head.dk = sums(chunk.k_gradient);
  head.dv = sums(chunk.v_gradient);
  return head;
}

/// One head of queries of one sequence against one block of keys of a chunk: adds to dq, dk and dv.
template <class S, class P>
void backward_key_block_of(const BackwardCall& call, std::int64_t sequence, std::int64_t head, const ChunkHead& at,
                           std::int64_t begin, const BackwardMemory<P>& memory, Context& context) {
  const AttentionShape& shape = call.shape;
  const std::int64_t size = shape.head_size;
  const std::int64_t keys = std::min(backward_key_block, at.tokens - begin);
  auto k = part<S, P>(context, at.chunk->k, at.row + begin, keys, at.column, size, memory.k_copy);
  auto v = part<S, P>(context, at.chunk->v, at.row + begin, keys, at.column, size, memory.v_copy);
  for (std::int64_t first = at.masked ? begin : 0; first < shape.query_tokens; first += query_block) {
    const std::int64_t rows = std::min(query_block, shape.query_tokens - first);
    const std::int64_t row = sequence * shape.query_tokens + first;
    const std::int64_t columns = at.masked ? std::min(keys, first + rows - begin) : keys;  // those that a query sees
    k.rows = columns;
    v.rows = columns;
    const auto q = part<S, P>(context, call.q, row, rows, head * size, size, memory.q_copy);
    const auto gradient = part<S, P>(context, call.out_gradient, row, rows, head * size, size, memory.gradient_copy);
    multiply(context, {memory.scores, columns}, q, k, Orientation::right_transposed, false);
    multiply(context, {memory.probability_gradients, columns}, gradient, v, Orientation::right_transposed, false);
    const ScoreBlock block{rows, columns, at.masked ? first - begin + 1 : columns, scale_of(shape)};
    functions_of<P>(*context.table)
        .softmax_gradient_block(block, {memory.probabilities, columns}, {memory.score_gradients, columns},
                                {memory.scores, columns}, {memory.probability_gradients, columns},
                                call.log_sum_exp.as<float>() + head * call.log_sum_exp.stride + row,
                                memory.shift + first);
    const Operand<P> probabilities{memory.probabilities, columns, rows, columns};
    const Operand<P> score_gradients{memory.score_gradients, columns, rows, columns};
    const auto from = [&](const Rows<float>& sums) {
      return Rows<float>{sums.data + begin * sums.stride, sums.stride};
    };
    multiply(context, from(at.dv), probabilities, gradient, Orientation::left_transposed, true);
    multiply(context, from(at.dk), score_gradients, q, Orientation::left_transposed, true);
    multiply(context, {memory.dq + first * size, size}, score_gradients, k, Orientation::plain, true);
  }
}

template <class S>
void store_head(const Context& context, const Matrix& matrix, std::int64_t row, std::int64_t rows, std::int64_t column,
                std::int64_t columns, const float* values) {
  functions_of<S>(*context.table)
      .finish({rows, columns}, {matrix.as<S>() + row * matrix.stride + column, matrix.stride}, {values, columns},
              nullptr, false);
}

/// The dot products of out_gradient and out of one head of one sequence; of a part they are given.
template <class S>
void find_shift(const BackwardCall& call, std::int64_t row, std::int64_t head, float* shift, const Context& context) {
  const AttentionShape& shape = call.shape;
  if (call.shift) {
    std::copy_n(call.shift.as<float>() + head * call.shift.stride + row, shape.query_tokens, shift);
    return;
  }
  const auto columns_of = [&](const ConstMatrix& matrix) {
    return Rows<const S>{matrix.as<S>() + row * matrix.stride + head * shape.head_size, matrix.stride};
  };
  functions_of<S>(*context.table)
      .dot_rows({shape.query_tokens, shape.head_size}, shift, columns_of(call.out_gradient), columns_of(call.out));
}

/// One key head of one sequence, and the query heads that share it, in their order.
template <class S, class P>
void backward_head(const BackwardCall& call, std::int64_t sequence, std::int64_t kv_head, Context context) {
  const AttentionShape& shape = call.shape;
  const std::int64_t size = shape.head_size;
  const std::int64_t sharing = shape.heads / shape.kv_heads;
  const std::int64_t row = sequence * shape.query_tokens;
  const auto memory = take_backward_memory<S, P>(call, context);
  const std::int64_t newest = call.newest_tokens();
  const std::int64_t column = kv_head * size;
  if (!call.is_part()) {
    start_newest(context, call.newest().k_gradient, sequence * newest, column, {newest, size}, memory.dk);
    start_newest(context, call.newest().v_gradient, sequence * newest, column, {newest, size}, memory.dv);
  }
  for (std::int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head) {
    find_shift<S>(call, row, head, memory.shift, context);
    std::fill_n(memory.dq, shape.query_tokens * size, 0.0F);
    for (std::size_t chunk = 0; chunk < call.chunks.size(); ++chunk) {
      const ChunkHead at = chunk_head(call, chunk, sequence, column, memory);
      for (std::int64_t begin = 0; begin < at.tokens; begin += backward_key_block) {
        backward_key_block_of<S, P>(call, sequence, head, at, begin, memory, context);
      }
    }
    const auto store = call.dq.type == DType::f32 ? store_head<float> : store_head<S>;
    store(context, call.dq, row, shape.query_tokens, head * size, size, memory.dq);
  }
  if (call.is_part()) return;
  store_head<S>(context, call.dk, sequence * newest, newest, column, size, memory.dk);
  store_head<S>(context, call.dv, sequence * newest, newest, column, size, memory.dv);
}

}  // namespace

void HostKernels::attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv,
                                     ConstMatrix out_gradient, ConstMatrix out, ConstMatrix log_sum_exp, ConstMatrix q,
                                     std::span<const KeyValueChunk> chunks) {
  const char* const name = "attention_gradient";
  expect_attention(name, shape, q, log_sum_exp);
  check_gradient_chunks(name, shape, q, chunks, NewestSums::may_be_empty);
  const ConstMatrix& newest = chunks.back().k;
  expect(name, "out_gradient", out_gradient, q.rows, q.columns, q.type);
  expect(name, "out", out, q.rows, q.columns, q.type);
  expect(name, "dq", dq, q.rows, q.columns, q.type);
  expect(name, "dk", dk, newest.rows, newest.columns, q.type);
  expect(name, "dv", dv, newest.rows, newest.columns, q.type);
  run_backward(name, {shape, dq, dk, dv, out_gradient, out, {}, log_sum_exp, q, chunks});
}

void HostKernels::attention_part_gradient(const AttentionShape& shape, Matrix dq, ConstMatrix out_gradient,
                                          ConstMatrix log_sum_exp, ConstMatrix shift, ConstMatrix q,
                                          std::span<const KeyValueChunk> chunks) {
  const char* const name = "attention_part_gradient";
  expect_attention(name, shape, q, log_sum_exp);
  check_gradient_chunks(name, shape, q, chunks, NewestSums::are_needed);
  expect(name, "out_gradient", out_gradient, q.rows, q.columns, q.type);
  expect(name, "shift", shift, shape.heads, q.rows, DType::f32);
  expect(name, "dq", dq, q.rows, q.columns, DType::f32);
  run_backward(name, {shape, dq, {}, {}, out_gradient, {}, shift, log_sum_exp, q, chunks});
}

void HostKernels::run_backward(const char* name, const BackwardCall& call) {
  with_operands(name, call.q.type, multiplies_bf16_, [&]<class S, class P>() {
    workers_->for_each(call.shape.sequences * call.shape.kv_heads, [&](std::int64_t task) {
      backward_head<S, P>(call, task / call.shape.kv_heads, task % call.shape.kv_heads,
                          Context{rows_, &products(), task_scratch()});
    });
  });
}

}  // namespace penstock::host
