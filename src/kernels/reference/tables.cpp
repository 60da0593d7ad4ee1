// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "kernels/reference/reference_kernels.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::reference {
namespace {

// The token of row t. @throws Error internal outside the table.
std::int64_t token_at(const ConstMatrix& tokens, std::int64_t t, std::int64_t vocabulary) {
  const std::int64_t token = tokens.as<std::int32_t>()[t];
  require(token >= 0 && token < vocabulary, "embedding: token {} of row {} is not in the vocabulary of {}", token, t,
          vocabulary);
  return token;
}

void check_positions(const ConstMatrix& positions, std::int64_t rows, std::int64_t tokens_per_sequence,
                     std::int64_t first_position) {
  require(tokens_per_sequence > 0 && rows % tokens_per_sequence == 0,
          "embedding: {} rows are no whole number of sequences of {} tokens", rows, tokens_per_sequence);
  if (!positions) return;
  require(first_position >= 0 && first_position + tokens_per_sequence <= positions.rows,
          "embedding: positions {}..{} are not in the table of {}", first_position,
          first_position + tokens_per_sequence - 1, positions.rows);
}

}  // namespace

void ReferenceKernels::embedding(Matrix out, ConstMatrix tokens, ConstMatrix token_table, ConstMatrix position_table,
                                 std::int64_t tokens_per_sequence, std::int64_t first_position) {
  expect_shape("embedding", "tokens", tokens, 1, out.rows);
  expect_shape("embedding", "token_table", token_table, token_table.rows, out.columns);
  if (position_table) expect_shape("embedding", "position_table", position_table, position_table.rows, out.columns);
  check_positions(position_table, out.rows, tokens_per_sequence, first_position);
  for (std::int64_t t = 0; t < out.rows; ++t) {
    const std::int64_t token = token_at(tokens, t, token_table.rows);
    const std::int64_t position = first_position + t % tokens_per_sequence;
    for (std::int64_t c = 0; c < out.columns; ++c) {
      const double shift = position_table ? element(position_table, position, c) : 0.0;
      set_element(out, t, c, element(token_table, token, c) + shift);
    }
  }
}

void ReferenceKernels::embedding_gradient(Matrix token_gradient, Matrix position_gradient, ConstMatrix gradient,
                                          ConstMatrix tokens, std::int64_t tokens_per_sequence,
                                          std::int64_t first_position) {
  expect_shape("embedding_gradient", "tokens", tokens, 1, gradient.rows);
  expect_shape("embedding_gradient", "token_gradient", token_gradient, token_gradient.rows, gradient.columns);
  if (position_gradient) {
    expect_shape("embedding_gradient", "position_gradient", position_gradient, position_gradient.rows,
                 gradient.columns);
  }
  check_positions(position_gradient, gradient.rows, tokens_per_sequence, first_position);
  Values token_sum = load(token_gradient);
  Values position_sum = load(position_gradient);
  for (std::int64_t t = 0; t < gradient.rows; ++t) {
    const bool is_here = tokens.as<std::int32_t>()[t] >= 0;
    const std::int64_t token = is_here ? token_at(tokens, t, token_gradient.rows) : 0;
    const std::int64_t position = first_position + t % tokens_per_sequence;
    for (std::int64_t c = 0; c < gradient.columns; ++c) {
      if (is_here) token_sum(token, c) += element(gradient, t, c);
      if (position_gradient) position_sum(position, c) += element(gradient, t, c);
    }
  }
  store(token_gradient, token_sum);
  store(position_gradient, position_sum);
}

}  // namespace penstock::reference
