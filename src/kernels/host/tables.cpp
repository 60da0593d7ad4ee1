// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/host/host_kernels.hpp"

namespace penstock::host {
namespace {

/// Columns of a table that one task adds to: one cache line pair of bf16 rows, so that no two tasks share a line for
/// long.
constexpr std::int64_t gradient_columns = 64;

void expect_sequences(std::string_view operation, std::int64_t rows, std::int64_t tokens_per_sequence) {
  require(tokens_per_sequence > 0 && rows % tokens_per_sequence == 0,
          "{}: {} rows are no whole number of sequences of {} tokens", operation, rows, tokens_per_sequence);
}

/// Numbers from `least` up: a token below 0 is of another table.
void expect_tokens(std::string_view operation, const ConstMatrix& tokens, std::int64_t vocabulary,
                   std::int32_t least = 0) {
  for (std::int64_t t = 0; t < tokens.columns; ++t) {
    const std::int32_t token = tokens.as<std::int32_t>()[t];
    require(token >= least && token < vocabulary, "{}: token {} at row {} is outside the vocabulary of {}", operation,
            token, t, vocabulary);
  }
}

void expect_positions(std::string_view operation, const ConstMatrix& table, std::int64_t columns, DType type,
                      std::int64_t last) {
  expect(operation, "position table", table, table.rows, columns, type);
  require(last <= table.rows, "{}: positions up to {} are asked for, the table has {}", operation, last, table.rows);
}

}  // namespace

void HostKernels::embedding(Matrix out, ConstMatrix tokens, ConstMatrix token_table, ConstMatrix position_table,
                            std::int64_t tokens_per_sequence, std::int64_t first_position) {
  expect("embedding", "tokens", tokens, 1, out.rows, DType::i32);
  expect("embedding", "token_table", token_table, token_table.rows, out.columns, out.type);
  expect_sequences("embedding", out.rows, tokens_per_sequence);
  expect_tokens("embedding", tokens, token_table.rows);
  if (position_table) {
    expect_positions("embedding", position_table, out.columns, out.type, first_position + tokens_per_sequence);
  }
  with_storage(*rows_, "embedding", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t row = first; row < first + rows; ++row) {
        const auto word = rows_of<S>(token_table, tokens.as<std::int32_t>()[row]);
        const auto to = rows_of<S>(out, row);
        if (position_table) {
          const std::int64_t position = first_position + row % tokens_per_sequence;
          functions.add({1, out.columns}, to, word, rows_of<S>(position_table, position));
        } else {
          std::copy_n(word.data, out.columns, to.data);
        }
      }
    });
  });
}

void HostKernels::embedding_gradient(Matrix token_gradient, Matrix position_gradient, ConstMatrix gradient,
                                     ConstMatrix tokens, std::int64_t tokens_per_sequence,
                                     std::int64_t first_position) {
  const char* const name = "embedding_gradient";
  expect(name, "tokens", tokens, 1, gradient.rows, DType::i32);
  expect(name, "token_gradient", token_gradient, token_gradient.rows, gradient.columns, DType::f32);
  expect_sequences(name, gradient.rows, tokens_per_sequence);
  expect_tokens(name, tokens, token_gradient.rows, std::numeric_limits<std::int32_t>::min());
  if (position_gradient) {
    expect_positions(name, position_gradient, gradient.columns, DType::f32, first_position + tokens_per_sequence);
  }
  with_storage(*rows_, name, gradient.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_column_blocks(gradient.columns, gradient_columns, [&](std::int64_t first, std::int64_t columns) {
      const auto add_row = [&](const Matrix& table, std::int64_t to, std::int64_t row) {
        functions.accumulate({1, columns}, {table.as<float>() + to * table.stride + first, table.stride},
                             {gradient.as<S>() + row * gradient.stride + first, gradient.stride});
      };
      for (std::int64_t row = 0; row < gradient.rows; ++row) {
        const std::int32_t token = tokens.as<std::int32_t>()[row];
        if (token >= 0) add_row(token_gradient, token, row);
        if (position_gradient) add_row(position_gradient, first_position + row % tokens_per_sequence, row);
      }
    });
  });
}

const float* AngleTable::rows(std::int64_t first, std::int64_t count, std::int64_t size, double theta) {
  if (size != size_ || theta != theta_) {
    angles_.clear();
    size_ = size;
    theta_ = theta;
  }
  const std::int64_t known = static_cast<std::int64_t>(angles_.size()) / size;
  const std::int64_t half = size / 2;
  angles_.resize(static_cast<std::size_t>(std::max(known, first + count) * size));
  for (std::int64_t position = known; position < first + count; ++position) {
    float* const row = angles_.data() + position * size;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return angles_.data() + first * size;
}

void HostKernels::rotate(Matrix x, std::int64_t heads, std::int64_t tokens_per_sequence, std::int64_t first_position,
                         double theta, Rotation rotation) {
  require(heads > 0 && x.columns % (2 * heads) == 0, "rotate: {} columns are no {} heads of even size", x.columns,
          heads);
  expect_sequences("rotate", x.rows, tokens_per_sequence);
  const std::int64_t size = x.columns / heads;
  const float* const angles = angles_.rows(first_position, tokens_per_sequence, size, theta);
  const float sign = rotation == Rotation::forward ? 1.0F : -1.0F;
  with_storage(*rows_, "rotate", x.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(x.rows, x.columns, [&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t row = first; row < first + rows; ++row) {
        functions.rotate({1, x.columns}, rows_of<S>(x, row), heads, angles + row % tokens_per_sequence * size, sign);
      }
    });
  });
}

}  // namespace penstock::host
