// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "kernels/attention_chunks.hpp"
#include "kernels/reference/reference_kernels.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::reference {
namespace {

void check(std::string_view operation, const AttentionShape& shape, const ConstMatrix& q,
           const ConstMatrix& log_sum_exp) {
  const std::int64_t queries = shape.sequences * shape.query_tokens;
  expect_shape(operation, "q", q, queries, shape.heads * shape.head_size);
  expect_shape(operation, "log_sum_exp", log_sum_exp, shape.heads, queries);
}

// Calls body(row in the chunk's matrices, row in joined ones) for all rows of a chunk that stands behind `before`
// tokens.
template <class Body>
void for_each_row(const AttentionShape& shape, const KeyValueChunk& chunk, std::int64_t before, const Body& body) {
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (std::int64_t token = 0; token < tokens_of(shape, chunk); ++token) {
      body(first_row_of(shape, chunk, sequence) + token, sequence * shape.key_tokens + before + token);
    }
  }
}

// The rows of all chunks of one of their matrices, sequence after sequence, each with its chunks in order.
template <class Member>
Values joined(const AttentionShape& shape, std::span<const KeyValueChunk> chunks, Member member) {
  Values all{shape.sequences * shape.key_tokens, shape.kv_heads * shape.head_size};
  std::int64_t before = 0;
  for (const KeyValueChunk& chunk : chunks) {
    const Values part = load(chunk.*member);
    for_each_row(shape, chunk, before, [&](std::int64_t own, std::int64_t joint) {
      std::copy_n(part.row(own), part.columns, all.row(joint));
    });
    before += tokens_of(shape, chunk);
  }
  return all;
}

// The rows of `all`, joined as above, that belong to the chunk behind `before` tokens; zeros in rows of its matrices
// that are not the chunk's.
Values part_of(const AttentionShape& shape, const KeyValueChunk& chunk, std::int64_t before, const Values& all) {
  Values part{chunk.k.rows, chunk.k.columns};
  for_each_row(shape, chunk, before,
               [&](std::int64_t own, std::int64_t joint) { std::copy_n(all.row(joint), part.columns, part.row(own)); });
  return part;
}

// Stores the newest chunk's gradients, its sums included, and adds those of the others to theirs; without a place for
// the newest chunk's its are added too.
void give_gradients(const AttentionShape& shape, std::span<const KeyValueChunk> chunks, const Matrix& newest,
                    Matrix KeyValueChunk::*sums, const Values& all) {
  std::int64_t before = 0;
  for (const KeyValueChunk& chunk : chunks) {
    Values part = part_of(shape, chunk, before, all);
    before += tokens_of(shape, chunk);
    const Matrix sum = chunk.*sums;
    if (&chunk != &chunks.back() || !newest) {
      add_to(sum, part);
      continue;
    }
    if (sum) {
      const Values earlier = load(sum);
      for (std::size_t i = 0; i < part.items.size(); ++i) part.items[i] += earlier.items[i];
    }
    store(newest, part);
  }
}

double dot(const double* a, const double* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* out, double scale, const double* in, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) out[i] += scale * in[i];
}

// One query row of one head: its own row and columns, and the first row, number and columns of the keys that it sees.
struct Query {
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;
  std::int64_t key_column = 0;
};

template <class Body>
void for_each_query(const AttentionShape& shape, const Body& body) {
  const std::int64_t sharing = shape.heads / shape.kv_heads;
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    for (std::int64_t row = 0; row < shape.sequences * shape.query_tokens; ++row) {
      const std::int64_t token = row % shape.query_tokens;
      body(Query{.head = head,
                 .row = row,
                 .column = head * shape.head_size,
                 .first_key = row / shape.query_tokens * shape.key_tokens,
                 .keys = shape.causal ? shape.key_tokens - shape.query_tokens + token + 1 : shape.key_tokens,
                 .key_column = head / sharing * shape.head_size});
    }
  }
}

double score_scale(const AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_size));
}

std::vector<double> scores_of(const AttentionShape& shape, const Query& query, const Values& q, const Values& k) {
  std::vector<double> scores;
  for (std::int64_t key = 0; key < query.keys; ++key) {
    scores.push_back(score_scale(shape) * dot(q.row(query.row) + query.column,
                                              k.row(query.first_key + key) + query.key_column, shape.head_size));
  }
  return scores;
}

double log_of_sum_of_exponentials(const std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  return largest + std::log(sum);
}

// A gradient, or with dk and dv empty a part of one.
struct GradientCall {
  const AttentionShape& shape;
  Matrix dq;
  Matrix dk;
  Matrix dv;
  ConstMatrix out_gradient;
  ConstMatrix log_sum_exp;
  ConstMatrix q;
  std::span<const KeyValueChunk> chunks;
};

// With p = softmax(s), s = scale q.k, dp = do.v and D = do.o:  ds = p (dp - D),  dq = scale ds k,  dk = scale ds q,  dv
// = p do. Of whatever keys there are, with the log-sum-exp and D of all: shift_of(query).
template <class ShiftOf>
void form_gradient(const GradientCall& call, const ShiftOf& shift_of) {
  const AttentionShape& shape = call.shape;
  const Values queries = load(call.q);
  const Values keys = joined(shape, call.chunks, &KeyValueChunk::k);
  const Values values = joined(shape, call.chunks, &KeyValueChunk::v);
  const Values upstream = load(call.out_gradient);
  Values query_gradient{call.q.rows, call.q.columns};
  Values key_gradient{keys.rows, keys.columns};
  Values value_gradient{values.rows, values.columns};
  for_each_query(shape, [&](const Query& query) {
    const std::vector<double> scores = scores_of(shape, query, queries, keys);
    const double normalizer = element(call.log_sum_exp, query.head, query.row);
    const double* gradient = upstream.row(query.row) + query.column;
    const double shift = shift_of(query);
    for (std::int64_t i = 0; i < query.keys; ++i) {
      const std::int64_t key = query.first_key + i;
      const double probability = std::exp(scores[static_cast<std::size_t>(i)] - normalizer);
      const double slope = score_scale(shape) * probability *
                           (dot(gradient, values.row(key) + query.key_column, shape.head_size) - shift);
      add_scaled(query_gradient.row(query.row) + query.column, slope, keys.row(key) + query.key_column,
                 shape.head_size);
      add_scaled(key_gradient.row(key) + query.key_column, slope, queries.row(query.row) + query.column,
                 shape.head_size);
      add_scaled(value_gradient.row(key) + query.key_column, probability, gradient, shape.head_size);
    }
  });
  store(call.dq, query_gradient);
  give_gradients(shape, call.chunks, call.dk, &KeyValueChunk::k_gradient, key_gradient);
  give_gradients(shape, call.chunks, call.dv, &KeyValueChunk::v_gradient, value_gradient);
}

// Of the heads that have a row each in `statistic`, side by side in `out`.
std::int64_t head_size_of(std::string_view operation, const ConstMatrix& out, const ConstMatrix& statistic) {
  require(statistic.rows > 0 && out.columns % statistic.rows == 0, "{}: {} columns are no {} heads", operation,
          out.columns, statistic.rows);
  expect_shape(operation, "the statistic of each head", statistic, statistic.rows, out.rows);
  return out.columns / statistic.rows;
}

}  // namespace

void ReferenceKernels::rotate(Matrix x, std::int64_t heads, std::int64_t tokens_per_sequence,
                              std::int64_t first_position, double theta, Rotation rotation) {
  require(heads > 0 && x.columns % (2 * heads) == 0, "rotate: {} columns are no {} heads of even size", x.columns,
          heads);
  require(tokens_per_sequence > 0 && x.rows % tokens_per_sequence == 0,
          "rotate: {} rows are no whole number of sequences of {} tokens", x.rows, tokens_per_sequence);
  const std::int64_t half = x.columns / heads / 2;
  Values values = load(x);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const auto position = static_cast<double>(first_position + t % tokens_per_sequence);
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      const double cosine = std::cos(angle);
      const double sine = rotation == Rotation::forward ? std::sin(angle) : -std::sin(angle);
      for (std::int64_t head = 0; head < heads; ++head) {
        double& first = values(t, head * 2 * half + i);
        double& second = values(t, head * 2 * half + half + i);
        const double rotated = first * cosine - second * sine;
        second = second * cosine + first * sine;
        first = rotated;
      }
    }
  }
  store(x, values);
}

void ReferenceKernels::attention(const AttentionShape& shape, Matrix out, Matrix log_sum_exp, ConstMatrix q,
                                 std::span<const KeyValueChunk> chunks) {
  check_chunks("attention", shape, q, chunks);
  check("attention", shape, q, log_sum_exp);
  expect_shape("attention", "out", out, q.rows, q.columns);
  const Values queries = load(q);
  const Values keys = joined(shape, chunks, &KeyValueChunk::k);
  const Values values = joined(shape, chunks, &KeyValueChunk::v);
  Values result{out.rows, out.columns};
  for_each_query(shape, [&](const Query& query) {
    const std::vector<double> scores = scores_of(shape, query, queries, keys);
    const double normalizer = log_of_sum_of_exponentials(scores);
    set_element(log_sum_exp, query.head, query.row, normalizer);
    for (std::int64_t key = 0; key < query.keys; ++key) {
      add_scaled(result.row(query.row) + query.column, std::exp(scores[static_cast<std::size_t>(key)] - normalizer),
                 values.row(query.first_key + key) + query.key_column, shape.head_size);
    }
  });
  store(out, result);
}

void ReferenceKernels::attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv,
                                          ConstMatrix out_gradient, ConstMatrix out, ConstMatrix log_sum_exp,
                                          ConstMatrix q, std::span<const KeyValueChunk> chunks) {
  check_gradient_chunks("attention_gradient", shape, q, chunks, NewestSums::may_be_empty);
  check("attention_gradient", shape, q, log_sum_exp);
  expect_shape("attention_gradient", "out_gradient", out_gradient, q.rows, q.columns);
  expect_shape("attention_gradient", "out", out, q.rows, q.columns);
  expect_shape("attention_gradient", "dq", dq, q.rows, q.columns);
  expect_shape("attention_gradient", "dk", dk, chunks.back().k.rows, chunks.back().k.columns);
  expect_shape("attention_gradient", "dv", dv, chunks.back().v.rows, chunks.back().v.columns);
  const Values upstream = load(out_gradient);
  const Values outputs = load(out);
  const auto shift_of = [&](const Query& query) {
    return dot(upstream.row(query.row) + query.column, outputs.row(query.row) + query.column, shape.head_size);
  };
  form_gradient({shape, dq, dk, dv, out_gradient, log_sum_exp, q, chunks}, shift_of);
}

void ReferenceKernels::attention_part_gradient(const AttentionShape& shape, Matrix dq, ConstMatrix out_gradient,
                                               ConstMatrix log_sum_exp, ConstMatrix shift, ConstMatrix q,
                                               std::span<const KeyValueChunk> chunks) {
  check_gradient_chunks("attention_part_gradient", shape, q, chunks, NewestSums::are_needed);
  check("attention_part_gradient", shape, q, log_sum_exp);
  expect_shape("attention_part_gradient", "shift", shift, shape.heads, q.rows);
  expect_shape("attention_part_gradient", "out_gradient", out_gradient, q.rows, q.columns);
  expect_shape("attention_part_gradient", "dq", dq, q.rows, q.columns);
  const auto shift_of = [&](const Query& query) { return element(shift, query.head, query.row); };
  form_gradient({shape, dq, {}, {}, out_gradient, log_sum_exp, q, chunks}, shift_of);
}

void ReferenceKernels::merge_attention(Matrix out, Matrix log_sum_exp, std::span<const AttentionPart> parts) {
  const std::int64_t size = head_size_of("merge_attention", out, log_sum_exp);
  for (const AttentionPart& part : parts) {
    expect_shape("merge_attention", "the out of a part", part.out, out.rows, out.columns);
    expect_shape("merge_attention", "the log_sum_exp of a part", part.log_sum_exp, log_sum_exp.rows, out.rows);
  }
  Values result{out.rows, out.columns};
  for (std::int64_t head = 0; head < log_sum_exp.rows; ++head) {
    for (std::int64_t row = 0; row < out.rows; ++row) {
      std::vector<double> normalizers;
      for (const AttentionPart& part : parts) normalizers.push_back(element(part.log_sum_exp, head, row));
      const double normalizer = log_of_sum_of_exponentials(normalizers);
      set_element(log_sum_exp, head, row, normalizer);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const double weight = std::exp(normalizers[i] - normalizer);
        for (std::int64_t column = head * size; column < (head + 1) * size; ++column) {
          result(row, column) += weight * element(parts[i].out, row, column);
        }
      }
    }
  }
  store(out, result);
}

void ReferenceKernels::attention_shift(Matrix shift, ConstMatrix out_gradient, ConstMatrix out) {
  const std::int64_t size = head_size_of("attention_shift", out, shift);
  expect_shape("attention_shift", "out_gradient", out_gradient, out.rows, out.columns);
  const Values upstream = load(out_gradient);
  const Values outputs = load(out);
  for (std::int64_t head = 0; head < shift.rows; ++head) {
    for (std::int64_t row = 0; row < out.rows; ++row) {
      set_element(shift, head, row, dot(upstream.row(row) + head * size, outputs.row(row) + head * size, size));
    }
  }
}

void ReferenceKernels::add_parts(Matrix out, std::span<const ConstMatrix> parts) {
  Values sum{out.rows, out.columns};
  for (const ConstMatrix& part : parts) {
    expect_shape("add_parts", "a part", part, out.rows, out.columns);
    const Values values = load(part);
    for (std::size_t i = 0; i < sum.items.size(); ++i) sum.items[i] += values.items[i];
  }
  store(out, sum);
}

}  // namespace penstock::reference
