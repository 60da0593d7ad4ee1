// SPDX-License-Identifier: Apache-2.0
//
// How the reference kernels see memory: every load converts to double, every store rounds once.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "kernels/tensor.hpp"

namespace penstock::reference {

/// The bf16 nearest to `value`, ties to even, from double in one rounding: the float on the way is rounded to odd, so
/// that the second rounding sees whether anything was cut off.
inline std::uint16_t bf16_bits(double value) {
  if (std::isnan(value)) return 0x7FC0;
  auto narrowed = static_cast<float>(value);
  if (std::fabs(static_cast<double>(narrowed)) > std::fabs(value)) narrowed = std::nextafterf(narrowed, 0.0F);
  auto bits = std::bit_cast<std::uint32_t>(narrowed);
  if (static_cast<double>(narrowed) != value) bits |= 1U;
  const std::uint32_t round = 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>((bits + round) >> 16U);
}

inline double from_bf16_bits(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U));
}

/// Element (row, column) of `matrix`; integers too.
double element(const ConstMatrix& matrix, std::int64_t row, std::int64_t column);
/// Stores `value` at (row, column), rounded to the matrix's type.
void set_element(const Matrix& matrix, std::int64_t row, std::int64_t column, double value);

/// A matrix in double, rows x columns, contiguous.
struct Values {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> items;

  Values(std::int64_t r, std::int64_t c) : rows{r}, columns{c}, items(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t row, std::int64_t column) {
    return items[static_cast<std::size_t>(row * columns + column)];
  }
  double operator()(std::int64_t row, std::int64_t column) const {
    return items[static_cast<std::size_t>(row * columns + column)];
  }
  double* row(std::int64_t index) { return items.data() + index * columns; }
  const double* row(std::int64_t index) const { return items.data() + index * columns; }
};

Values load(const ConstMatrix& matrix);
void store(const Matrix& matrix, const Values& values);
/// matrix += values, the sum rounded once.
void add_to(const Matrix& matrix, const Values& values);

/// @throws Error internal unless `matrix` is rows x columns, naming operation and operand.
void expect_shape(std::string_view operation, std::string_view operand, const ConstMatrix& matrix, std::int64_t rows,
                  std::int64_t columns);

}  // namespace penstock::reference
