// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/values.hpp"

#include "base/error.hpp"

namespace penstock::reference {

double element(const ConstMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * matrix.stride + column;
  switch (matrix.type) {
    case DType::bf16:
      return from_bf16_bits(matrix.as<std::uint16_t>()[at]);
    case DType::f32:
      return static_cast<double>(matrix.as<float>()[at]);
    case DType::f64:
      return matrix.as<double>()[at];
    case DType::i32:
      return static_cast<double>(matrix.as<std::int32_t>()[at]);
  }
  return 0;
}

void set_element(const Matrix& matrix, std::int64_t row, std::int64_t column, double value) {
  const std::int64_t at = row * matrix.stride + column;
  switch (matrix.type) {
    case DType::bf16:
      matrix.as<std::uint16_t>()[at] = bf16_bits(value);
      return;
    case DType::f32:
      matrix.as<float>()[at] = static_cast<float>(value);
      return;
    case DType::f64:
      matrix.as<double>()[at] = value;
      return;
    case DType::i32:
      fail(ExitCode::internal, "reference kernels: an operation would store into an integer matrix");
  }
}

Values load(const ConstMatrix& matrix) {
  Values values{matrix.rows, matrix.columns};
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) values(row, column) = element(matrix, row, column);
  }
  return values;
}

void store(const Matrix& matrix, const Values& values) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      set_element(matrix, row, column, values(row, column));
    }
  }
}

void add_to(const Matrix& matrix, const Values& values) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      set_element(matrix, row, column, element(matrix, row, column) + values(row, column));
    }
  }
}

void expect_shape(std::string_view operation, std::string_view operand, const ConstMatrix& matrix, std::int64_t rows,
                  std::int64_t columns) {
  require(static_cast<bool>(matrix) && matrix.rows == rows && matrix.columns == columns && matrix.stride >= columns,
          "{}: {} is [{}, {}] with stride {}{}, expected [{}, {}]", operation, operand, matrix.rows, matrix.columns,
          matrix.stride, matrix ? "" : " and no memory", rows, columns);
}

}  // namespace penstock::reference
