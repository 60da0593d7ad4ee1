// SPDX-License-Identifier: Apache-2.0
//
// Attention block by block, so that memory is linear in the tokens. Blocks of keys do not reach beyond their chunk: the
// running softmax takes the chunks one behind the other, and rounds nothing between them. S is the storage type; the
// products take operands of type P, which is S, or float where oneDNN has no bf16 instructions and blocks are widened
// as they are needed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/attention_chunks.hpp"
#include "kernels/host/host_kernels.hpp"

namespace penstock::host {
namespace {

// The order of the sums follows from these. Key blocks are whole numbers of query blocks, so that with the causal mask
// every query of a block sees at least one key of each key block that the block of queries reaches.
constexpr std::int64_t query_block = 128;
constexpr std::int64_t forward_key_block = 512;
constexpr std::int64_t backward_key_block = 256;

/// A matrix that a product reads, [rows, columns] as stored.
template <class P>
struct Operand {
  const P* data;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t columns;
};

/// What every step of a task needs.
struct Context {
  const RowTable* table;
  Products* products;
  TaskScratch scratch;
};

enum class Orientation : std::uint8_t { plain, left_transposed, right_transposed };

/// result (+)= left · right.
template <class P>
void multiply(Context& context, Rows<float> result, const Operand<P>& left, const Operand<P>& right,
              Orientation orientation, bool adds) {
  const bool left_transposed = orientation == Orientation::left_transposed;
  const bool right_transposed = orientation == Orientation::right_transposed;
  const ProductShape shape{.rows = left_transposed ? left.columns : left.rows,
                           .columns = right_transposed ? right.rows : right.columns,
                           .depth = left_transposed ? left.rows : left.columns,
                           .left_stride = left.stride,
                           .right_stride = right.stride,
                           .result_stride = result.stride,
                           .operands = std::is_same_v<P, float> ? DType::f32 : DType::bf16,
                           .result = DType::f32,
                           .left_transposed = left_transposed,
                           .right_transposed = right_transposed,
                           .adds = adds};
  context.products->multiply(shape, {left.data, right.data, result.data, nullptr}, context.scratch.rest());
}

/// A part of q, k, v or out_gradient as an operand; `copy` has room for it if it must be widened.
template <class S, class P>
Operand<P> part(const Context& context, const ConstMatrix& matrix, std::int64_t row, std::int64_t rows,
                std::int64_t column, std::int64_t columns, P* copy) {
  const S* const data = matrix.as<S>() + row * matrix.stride + column;
  if constexpr (std::is_same_v<S, P>) {
    return {data, matrix.stride, rows, columns};
  } else {
    context.table->bf16.widen({rows, columns}, {copy, columns}, {data, matrix.stride});
    return {copy, columns, rows, columns};
  }
}

template <class S, class P>
P* take_copy(Context& context, std::int64_t count) {
  return std::is_same_v<S, P> ? nullptr : context.scratch.take<P>(count);
}

template <class T>
const RowFunctions<T>& functions_of(const RowTable& table) {
  if constexpr (std::is_same_v<T, float>) {
    return table.f32;
  } else {
    return table.bf16;
  }
}

float scale_of(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

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
    const std::int64_t chunk_row = sequence * tokens_of(shape, chunk);
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
  functions_of<S>(*context.table)
      .softmax_finish({rows, size}, {call.out.as<S>() + row * call.out.stride + head * size, call.out.stride},
                      {result, size}, maximum, sum,
                      call.log_sum_exp.as<float>() + head * call.log_sum_exp.stride + row);
}

struct BackwardCall {
  const AttentionShape& shape;
  Matrix dq;
  Matrix dk;
  Matrix dv;
  ConstMatrix out_gradient;
  ConstMatrix out;
  ConstMatrix log_sum_exp;
  ConstMatrix q;
  std::span<const KeyValueChunk> chunks;

  const KeyValueChunk& newest() const { return chunks.back(); }
  std::int64_t newest_tokens() const { return tokens_of(shape, newest()); }
};

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
  memory.dk = scratch.take<float>(call.newest_tokens() * size);
  memory.dv = scratch.take<float>(call.newest_tokens() * size);
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
  const std::int64_t row = sequence * tokens;
  const std::int64_t size = call.shape.head_size;
  ChunkHead head{&chunk,           tokens, row, column, is_masked(call.shape, call.chunks, index), {memory.dk, size},
                 {memory.dv, size}};
  if (index + 1 == call.chunks.size()) return head;
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
  start_newest(context, call.newest().k_gradient, sequence * newest, column, {newest, size}, memory.dk);
  start_newest(context, call.newest().v_gradient, sequence * newest, column, {newest, size}, memory.dv);
  for (std::int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head) {
    const auto columns_of = [&](const ConstMatrix& matrix) {
      return Rows<const S>{matrix.as<S>() + row * matrix.stride + head * size, matrix.stride};
    };
    functions_of<S>(*context.table)
        .dot_rows({shape.query_tokens, size}, memory.shift, columns_of(call.out_gradient), columns_of(call.out));
    std::fill_n(memory.dq, shape.query_tokens * size, 0.0F);
    for (std::size_t chunk = 0; chunk < call.chunks.size(); ++chunk) {
      const ChunkHead at = chunk_head(call, chunk, sequence, column, memory);
      for (std::int64_t begin = 0; begin < at.tokens; begin += backward_key_block) {
        backward_key_block_of<S, P>(call, sequence, head, at, begin, memory, context);
      }
    }
    store_head<S>(context, call.dq, row, shape.query_tokens, head * size, size, memory.dq);
  }
  store_head<S>(context, call.dk, sequence * newest, newest, column, size, memory.dk);
  store_head<S>(context, call.dv, sequence * newest, newest, column, size, memory.dv);
}

void expect_attention(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
                      const ConstMatrix& log_sum_exp) {
  const std::int64_t queries = shape.sequences * shape.query_tokens;
  expect(operation, "q", q, queries, shape.heads * shape.head_size, q.type);
  expect(operation, "log_sum_exp", log_sum_exp, shape.heads, queries, DType::f32);
}

/// Calls body<S, P>().
template <class Body>
void with_operands(std::string_view operation, DType storage, bool bf16_products, const Body& body) {
  if (storage == DType::f32) {
    body.template operator()<float, float>();
  } else {
    require(storage == DType::bf16, "{}: the host kernels store bf16 or f32", operation);
    if (bf16_products) {
      body.template operator()<BFloat16, BFloat16>();
    } else {
      body.template operator()<BFloat16, float>();
    }
  }
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
  expect("attention", "out", out, q.rows, q.columns, q.type);
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

void HostKernels::attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv,
                                     ConstMatrix out_gradient, ConstMatrix out, ConstMatrix log_sum_exp, ConstMatrix q,
                                     std::span<const KeyValueChunk> chunks) {
  const char* const name = "attention_gradient";
  expect_attention(name, shape, q, log_sum_exp);
  check_gradient_chunks(name, shape, q, chunks);
  const ConstMatrix& newest = chunks.back().k;
  expect(name, "out_gradient", out_gradient, q.rows, q.columns, q.type);
  expect(name, "out", out, q.rows, q.columns, q.type);
  expect(name, "dq", dq, q.rows, q.columns, q.type);
  expect(name, "dk", dk, newest.rows, newest.columns, q.type);
  expect(name, "dv", dv, newest.rows, newest.columns, q.type);
  const BackwardCall call{shape, dq, dk, dv, out_gradient, out, log_sum_exp, q, chunks};
  with_operands(name, q.type, multiplies_bf16_, [&]<class S, class P>() {
    workers_->for_each(shape.sequences * shape.kv_heads, [&](std::int64_t task) {
      backward_head<S, P>(call, task / shape.kv_heads, task % shape.kv_heads,
                          Context{rows_, &products(), task_scratch()});
    });
  });
}

}  // namespace penstock::host
