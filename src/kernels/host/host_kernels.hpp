// SPDX-License-Identifier: Apache-2.0
//
// The fast host kernels. Every operation is cut into tasks by its shape alone, and every sum is formed inside one task
// or over the tasks' results in order: the bits do not depend on the threads.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/host/products.hpp"
#include "kernels/host/row_functions.hpp"
#include "kernels/host/scratch.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"

namespace penstock::host {

/// cos and sin of position * theta^(-2 i / size), as one row [cosines, sines] a position; grows as positions are asked
/// for.
class AngleTable {
 public:
  /// The rows from position `first`; valid until the next call.
  const float* rows(std::int64_t first, std::int64_t count, std::int64_t size, double theta);

 private:
  std::int64_t size_ = 0;
  double theta_ = 0;
  std::vector<float> angles_;
};

/// result[rows, columns] = left · right, cut into tiles; see linear.cpp.
struct TiledProduct {
  Matrix result;
  ConstMatrix left;
  ConstMatrix right;
  ConstMatrix bias;  ///< may be empty
  bool left_transposed = false;
  bool right_transposed = false;
  bool adds = false;
};

struct BackwardCall;  // attention_gradient.cpp

class HostKernels final : public Kernels {
 public:
  explicit HostKernels(Workers& workers);

  std::string description() const override;
  Bytes scratch_bytes(const KernelLimits& limits) const override;
  void bind_scratch(std::span<std::byte> scratch) override;

  void embedding(Matrix out, ConstMatrix tokens, ConstMatrix token_table, ConstMatrix position_table,
                 std::int64_t tokens_per_sequence, std::int64_t first_position) override;
  void embedding_gradient(Matrix token_gradient, Matrix position_gradient, ConstMatrix gradient, ConstMatrix tokens,
                          std::int64_t tokens_per_sequence, std::int64_t first_position) override;

  void rms_norm(Matrix out, Matrix inverse_rms, ConstMatrix in, ConstMatrix weight, double epsilon) override;
  void rms_norm_gradient(Matrix in_gradient, Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in,
                         ConstMatrix inverse_rms, ConstMatrix weight, ConstMatrix residual) override;
  void layer_norm(Matrix out, Matrix mean, Matrix inverse_deviation, ConstMatrix in, ConstMatrix weight,
                  ConstMatrix bias, double epsilon) override;
  void layer_norm_gradient(Matrix in_gradient, Matrix weight_gradient, Matrix bias_gradient, ConstMatrix out_gradient,
                           ConstMatrix in, ConstMatrix mean, ConstMatrix inverse_deviation, ConstMatrix weight,
                           ConstMatrix residual) override;

  void linear(Matrix out, ConstMatrix in, ConstMatrix weight, ConstMatrix bias) override;
  void linear_input_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix weight, Write write) override;
  void linear_weight_gradient(Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in) override;
  void bias_gradient(Matrix bias_gradient, ConstMatrix out_gradient) override;

  void rotate(Matrix x, std::int64_t heads, std::int64_t tokens_per_sequence, std::int64_t first_position, double theta,
              Rotation rotation) override;
  void attention(const AttentionShape& shape, Matrix out, Matrix log_sum_exp, ConstMatrix q,
                 std::span<const KeyValueChunk> chunks) override;
  void attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv, ConstMatrix out_gradient,
                          ConstMatrix out, ConstMatrix log_sum_exp, ConstMatrix q,
                          std::span<const KeyValueChunk> chunks) override;
  void merge_attention(Matrix out, Matrix log_sum_exp, std::span<const AttentionPart> parts) override;
  void attention_shift(Matrix shift, ConstMatrix out_gradient, ConstMatrix out) override;
  void attention_part_gradient(const AttentionShape& shape, Matrix dq, ConstMatrix out_gradient,
                               ConstMatrix log_sum_exp, ConstMatrix shift, ConstMatrix q,
                               std::span<const KeyValueChunk> chunks) override;
  void add_parts(Matrix out, std::span<const ConstMatrix> parts) override;

  void add(Matrix out, ConstMatrix a, ConstMatrix b) override;
  void swiglu(Matrix out, ConstMatrix gate, ConstMatrix up) override;
  void swiglu_gradient(Matrix gate_gradient, Matrix up_gradient, ConstMatrix out_gradient, ConstMatrix gate,
                       ConstMatrix up) override;
  void gelu(Matrix out, ConstMatrix in) override;
  void gelu_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix in) override;
  void zero(Matrix out) override;
  void copy(Matrix out, ConstMatrix in) override;

  void cross_entropy(Matrix losses, Matrix log_sum_exp, ConstMatrix logits, ConstMatrix targets) override;
  void cross_entropy_gradient(Matrix logits_gradient, ConstMatrix logits, ConstMatrix log_sum_exp, ConstMatrix targets,
                              double scale) override;

 private:
  /// Calls body(first row, rows) for blocks of rows of about the same work, in parallel.
  void for_row_blocks(std::int64_t rows, std::int64_t columns,
                      const std::function<void(std::int64_t, std::int64_t)>& body);
  /// Calls body(first column, columns) for blocks of `width` columns, in parallel.
  void for_column_blocks(std::int64_t columns, std::int64_t width,
                         const std::function<void(std::int64_t, std::int64_t)>& body);
  void run_backward(const char* name, const BackwardCall& call);
  void run_tiles(const TiledProduct& product);
  void run_tile(const TiledProduct& product, std::int64_t row, std::int64_t column);
  /// gradient[columns] += the rows of partials[blocks][columns], in order.
  void add_partials(Matrix gradient, float* partials, std::int64_t blocks);
  Products& products() { return products_[static_cast<std::size_t>(Workers::thread_index())]; }
  TaskScratch task_scratch() const { return scratch_.of_thread(Workers::thread_index()); }

  Workers* workers_;
  const RowTable* rows_;
  bool multiplies_bf16_;
  std::vector<Products> products_;  // by thread
  Scratch scratch_;
  AngleTable angles_;
};

/// Scratch of one thread for tiled products, and for attention forward and backward.
std::int64_t tile_scratch_bytes(const KernelLimits& limits);
std::int64_t attention_scratch_bytes(const AttentionShape& shape);
/// Scratch of a whole normalization gradient.
std::int64_t norm_scratch_bytes(std::int64_t rows, std::int64_t columns);

/// @throws Error internal unless `matrix` is rows x columns of `type`.
void expect(std::string_view operation, std::string_view operand, const ConstMatrix& matrix, std::int64_t rows,
            std::int64_t columns, DType type);

/// The rows of a matrix from `row` on, as the row functions take them.
template <class S>
Rows<S> rows_of(const Matrix& matrix, std::int64_t row = 0) {
  return {matrix.as<S>() + row * matrix.stride, matrix.stride};
}
template <class S>
Rows<const S> rows_of(const ConstMatrix& matrix, std::int64_t row = 0) {
  return {matrix.data == nullptr ? nullptr : matrix.as<S>() + row * matrix.stride, matrix.stride};
}

/// Calls body with the row functions of a storage type.
template <class Body>
void with_storage(const RowTable& table, std::string_view operation, DType type, const Body& body) {
  if (type == DType::bf16) {
    body(table.bf16);
  } else {
    require(type == DType::f32, "{}: the host kernels store bf16 or f32", operation);
    body(table.f32);
  }
}

}  // namespace penstock::host
