// SPDX-License-Identifier: Apache-2.0
//
// The loops over memory of the CPU stages. One body (vector_loops.inc), compiled once per instruction set and chosen at
// run time. It adds, multiplies, divides and takes roots one rounding at a time, in an order that does not depend on
// the vector width, so all instruction sets give the same bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

/// The factors of one AdamW update, the same for all elements of a parameter.
struct AdamWFactors {
  float gradient = 1.0F;  ///< clip factor
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float step_size = 0;                ///< learning rate / (1 - beta1^t)
  float inverse_root_correction = 0;  ///< 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
  float decay = 0;  ///< learning rate x weight decay, 0 for parameters that do not decay

  friend bool operator==(const AdamWFactors&, const AdamWFactors&) = default;
};

/// Masters and both moments of the same elements.
struct AdamWState {
  float* master = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
};

/// What one update reads and writes; gradient only read, working copy (bf16 bits or fp32) only written.
struct AdamWArrays {
  AdamWState state;
  const float* gradient = nullptr;
  AdamWState next = {};  ///< where the new state goes, beside the old one; null: in its place
};

/// The loops of one instruction set.
struct VectorLoops {
  std::string_view instruction_set;  ///< "avx512", "avx2", "baseline"
  void (*adamw_bf16)(const AdamWFactors&, const AdamWArrays&, std::uint16_t* working_copy, std::int64_t count);
  void (*adamw_fp32)(const AdamWFactors&, const AdamWArrays&, float* working_copy, std::int64_t count);
  /// The inverse of an update: from the state behind it, in its place, the one before, to rounding (`take_back`).
  void (*adamw_inverse)(const AdamWFactors&, const AdamWState&, const float* gradient, std::int64_t count);
  /// Rounds to nearest, ties to even; a NaN stays one.
  void (*to_bf16)(std::uint16_t* out, const float* in, std::int64_t count);
  /// sum += term, elementwise.
  void (*add)(float* sum, const float* term, std::int64_t count);
  /// out = first + second, elementwise; out may be either.
  void (*add_two)(float* out, const float* first, const float* second, std::int64_t count);
  /// Sum of squares in double: 16 interleaved sums, then a tree over them.
  double (*sum_of_squares)(const float* values, std::int64_t count);
};

/// The widest that this processor runs.
const VectorLoops& vector_loops();
/// One by name, for tests; null if this build or processor does not have it.
const VectorLoops* vector_loops(std::string_view instruction_set);

}  // namespace penstock
