// SPDX-License-Identifier: Apache-2.0
//
// Attention block by block, so that memory is linear in the tokens. Blocks of keys do not reach beyond their chunk: the
// running softmax takes the chunks one behind the other, and rounds nothing between them. S is the storage type; the
// products take operands of type P, which is S, or float where oneDNN has no bf16 instructions and blocks are widened
// as they are needed.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/attention_chunks.hpp"
#include "kernels/host/host_kernels.hpp"

namespace penstock::host {

// The order of the sums follows from these. Key blocks are whole numbers of query blocks, so that with the causal mask
// every query of a block sees at least one key of each key block that the block of queries reaches.
inline constexpr std::int64_t query_block = 128;
inline constexpr std::int64_t forward_key_block = 512;
inline constexpr std::int64_t backward_key_block = 256;

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

inline float scale_of(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

inline void expect_attention(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
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

}  // namespace penstock::host
