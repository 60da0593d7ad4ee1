// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/tensor.hpp"

namespace penstock::host {

/// One matrix product result[rows, columns] (+)= left[rows, depth] · right[depth, columns] (+ bias[columns]), with fp32
/// accumulation and one rounding. Strides are in elements; a transposed operand is stored [depth, rows] or [columns,
/// depth].
struct ProductShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  std::int64_t left_stride = 0;
  std::int64_t right_stride = 0;
  std::int64_t result_stride = 0;
  DType operands = DType::f32;  ///< of left, right and bias
  DType result = DType::f32;
  bool left_transposed = false;
  bool right_transposed = false;
  bool adds = false;  ///< result is f32
  bool biased = false;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

struct ProductOperands {
  const void* left = nullptr;
  const void* right = nullptr;
  void* result = nullptr;
  const void* bias = nullptr;
};

/// The oneDNN matrix products of one thread, prepared at first use and kept by shape. Not thread-safe: one for each
/// thread.
///
/// A product is prepared and run by the same thread with one OpenMP thread (Workers sees to that), because oneDNN's
/// bits depend on the number of threads of both.
class Products {
 public:
  Products();
  ~Products();
  Products(Products&&) noexcept;
  Products& operator=(Products&&) noexcept;

  /// @throws Error internal if oneDNN needs more than `scratch`, or refuses.
  void multiply(const ProductShape& shape, const ProductOperands& operands, std::span<std::byte> scratch);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// An upper bound of the scratch that oneDNN takes for a product of this size, for every layout, type and instruction
/// set: copies of both operands and of the result in fp32, in blocks of 64, and a fixed part.
std::int64_t product_scratch_bytes(std::int64_t rows, std::int64_t columns, std::int64_t depth);

/// Whether oneDNN multiplies bf16 by instructions of this processor, under the limit of DNNL_MAX_CPU_ISA.
bool multiplies_bf16();

/// "oneDNN 2.6.0, avx512_core_bf16".
std::string product_library();

}  // namespace penstock::host
