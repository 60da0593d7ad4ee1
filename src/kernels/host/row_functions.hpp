// SPDX-License-Identifier: Apache-2.0
//
// The row-wise work of the host kernels, compiled once per instruction set (rows_*.cpp) and chosen at run time. Plain
// structs and pointers only: an inline function here would be compiled for several instruction sets, and the linker
// keeps any one.
#pragma once

#include <cstdint>

namespace penstock::host {

struct BFloat16 {
  std::uint16_t bits;
};

/// Rows of a matrix, `stride` elements apart.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;
};

/// How many rows and columns a call works on.
struct Block {
  std::int64_t rows;
  std::int64_t columns;
};

/// What a block of attention scores needs to become probabilities.
struct ScoreBlock {
  std::int64_t rows;         ///< queries
  std::int64_t columns;      ///< keys
  std::int64_t first_valid;  ///< row r sees the keys 0 .. first_valid + r - 1 of the block (all if that is beyond it)
  float scale;
};

/// Storage type S, accumulation type float.
template <class S>
struct RowFunctions {
  void (*add)(Block, Rows<S> out, Rows<const S> a, Rows<const S> b);
  void (*gelu)(Block, Rows<S> out, Rows<const S> in);
  void (*gelu_gradient)(Block, Rows<S> in_gradient, Rows<const S> out_gradient, Rows<const S> in);
  void (*swiglu)(Block, Rows<S> out, Rows<const S> gate, Rows<const S> up);
  void (*swiglu_gradient)(Block, Rows<S> gate_gradient, Rows<S> up_gradient, Rows<const S> out_gradient,
                          Rows<const S> gate, Rows<const S> up);
  /// Rotates all heads of rows whose angles are `angles`: [rows][cosines, sines], head_size / 2 of each.
  void (*rotate)(Block, Rows<S> x, std::int64_t heads, const float* angles, float sign);

  void (*rms_norm)(Block, Rows<S> out, float* inverse_rms, Rows<const S> in, const S* weight, float epsilon);
  void (*rms_norm_gradient)(Block, Rows<S> in_gradient, float* weight_partial, Rows<const S> out_gradient,
                            Rows<const S> in, const float* inverse_rms, const S* weight, Rows<const S> residual);
  void (*layer_norm)(Block, Rows<S> out, float* mean, float* inverse_deviation, Rows<const S> in, const S* weight,
                     const S* bias, float epsilon);
  void (*layer_norm_gradient)(Block, Rows<S> in_gradient, float* weight_partial, float* bias_partial,
                              Rows<const S> out_gradient, Rows<const S> in, const float* mean,
                              const float* inverse_deviation, const S* weight, Rows<const S> residual);

  /// total[columns] += the column sums of `in`, formed in blocks of 64 rows.
  void (*add_column_sums)(Block, float* total, Rows<const S> in);
  /// out += in.
  void (*accumulate)(Block, Rows<float> out, Rows<const S> in);
  void (*widen)(Block, Rows<float> out, Rows<const S> in);
  /// out = round(tile (+ bias) (+ out)).
  void (*finish)(Block, Rows<S> out, Rows<const float> tile, const S* bias, bool adds);

  /// losses and log_sum_exp, one a row; a target below 0 gives loss 0.
  void (*cross_entropy)(Block, float* losses, float* log_sum_exp, Rows<const float> logits,
                        const std::int32_t* targets);
  void (*cross_entropy_gradient)(Block, Rows<S> gradient, Rows<const float> logits, const float* log_sum_exp,
                                 const std::int32_t* targets, float scale);

  /// One block of keys of the running softmax: probabilities = exp(scale * scores - maximum), with the new maximum of
  /// each row; multiplies sum and the rows of `out` (head_size columns) by exp(old - new maximum), and adds to sum.
  void (*softmax_block)(ScoreBlock, Rows<S> probabilities, Rows<const float> scores, float* maximum, float* sum,
                        Rows<float> out, std::int64_t head_size);
  /// After the last block: out = accumulated / sum, log_sum_exp = maximum + log(sum).
  void (*softmax_finish)(Block, Rows<S> out, Rows<const float> accumulated, const float* maximum, const float* sum,
                         float* log_sum_exp);
  /// products[r] = the dot product of the rows r of a and b.
  void (*dot_rows)(Block, float* products, Rows<const S> a, Rows<const S> b);
  /// probabilities = exp(scale * scores - log_sum_exp); score_gradients = probabilities * (probability_gradients -
  /// shift) * scale. Keys that a row does not see get 0.
  void (*softmax_gradient_block)(ScoreBlock, Rows<S> probabilities, Rows<S> score_gradients, Rows<const float> scores,
                                 Rows<const float> probability_gradients, const float* log_sum_exp, const float* shift);
};

struct RowTable {
  RowFunctions<float> f32;
  RowFunctions<BFloat16> bf16;
};

extern const RowTable baseline_rows;  ///< any x86-64
extern const RowTable avx2_rows;      ///< AVX2 and FMA
extern const RowTable avx512_rows;    ///< AVX-512 F, BW, DQ, VL

}  // namespace penstock::host
