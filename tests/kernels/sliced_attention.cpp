// SPDX-License-Identifier: Apache-2.0
//
// Attention slice by slice against attention of the whole sequence, in double with the reference kernels.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "reference_tensor.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

constexpr std::int64_t sequences = 2;
constexpr std::int64_t tokens = 7;
constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t head_size = 3;
constexpr std::int64_t width = heads * head_size;
constexpr std::int64_t kv_width = kv_heads * head_size;

// Sums of 7 keys and of 6 vector elements, in double, with a reserve for exp and log.
constexpr double attention_tolerance = 64 * 0x1p-53;

Tensor varied_sequences(std::int64_t columns, std::int64_t salt) {
  Tensor tensor{DType::f64, sequences * tokens, columns};
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, static_cast<double>((i * i * 17 + i * 641 + salt * 1013) % 1999) / 999.5 - 1.0);
  }
  return tensor;
}

/// Tokens [begin, begin + length) of every sequence.
struct Range {
  std::int64_t begin;
  std::int64_t length;
};

Tensor part_of(const Tensor& whole, std::int64_t columns, Range range) {
  Tensor part{DType::f64, sequences * range.length, columns};
  for (std::int64_t i = 0; i < part.size(); ++i) {
    const std::int64_t row = i / columns;
    const std::int64_t from = row / range.length * tokens + range.begin + row % range.length;
    part.set(i, whole[from * columns + i % columns]);
  }
  return part;
}

AttentionShape shape_of(std::int64_t queries, std::int64_t keys) {
  return {.sequences = sequences,
          .query_tokens = queries,
          .key_tokens = keys,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_size = head_size};
}

/// What attention of some rows takes and gives.
struct Rows {
  Rows(const Tensor& q_of_all, const Tensor& k_of_all, const Tensor& v_of_all, const Tensor& upstream_of_all,
       Range which)
      : range{which},
        q{part_of(q_of_all, width, which)},
        k{part_of(k_of_all, kv_width, which)},
        v{part_of(v_of_all, kv_width, which)},
        upstream{part_of(upstream_of_all, width, which)},
        out{DType::f64, sequences * which.length, width},
        log_sum_exp{DType::f64, heads, sequences * which.length},
        dq{out},
        dk{k},
        dv{v},
        k_sum{DType::f64, sequences * which.length, kv_width},
        v_sum{k_sum} {}
  Range range;
  Tensor q, k, v, upstream, out, log_sum_exp, dq, dk, dv, k_sum, v_sum;
};

class SlicedAttention : public testing::TestWithParam<std::vector<Range>> {
 protected:
  Rows rows_of(Range range) { return {q_, k_, v_, upstream_, range}; }

  std::vector<KeyValueChunk> chunks_up_to(std::vector<Rows>& slices, std::size_t last) {
    std::vector<KeyValueChunk> chunks;
    for (std::size_t i = 0; i <= last; ++i) {
      chunks.push_back({slices[i].k, slices[i].v, slices[i].k_sum, slices[i].v_sum});
    }
    return chunks;
  }

  /// Forward of all slices ascending, backward descending.
  void run(std::vector<Rows>& slices) {
    const auto shape = [&](std::size_t i) {
      return shape_of(slices[i].range.length, slices[i].range.begin + slices[i].range.length);
    };
    for (std::size_t i = 0; i < slices.size(); ++i) {
      Rows& own = slices[i];
      kernels_->attention(shape(i), own.out, own.log_sum_exp, own.q, chunks_up_to(slices, i));
    }
    for (std::size_t i = slices.size(); i-- > 0;) {
      Rows& own = slices[i];
      kernels_->attention_gradient(shape(i), own.dq, own.dk, own.dv, own.upstream, own.out, own.log_sum_exp, own.q,
                                   chunks_up_to(slices, i));
    }
  }

  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
  Tensor q_ = varied_sequences(width, 1);
  Tensor k_ = varied_sequences(kv_width, 2);
  Tensor v_ = varied_sequences(kv_width, 3);
  Tensor upstream_ = varied_sequences(width, 4);
};

TEST_P(SlicedAttention, GivesTheResultAndTheGradientsOfTheWholeSequence) {
  std::vector<Rows> whole{rows_of({0, tokens})};
  std::vector<Rows> slices;
  for (const Range range : GetParam()) slices.push_back(rows_of(range));

  run(whole);
  run(slices);

  for (const Rows& own : slices) {
    const auto expected = [&](const Tensor& of_all, std::int64_t columns) {
      return part_of(of_all, columns, own.range).values();
    };
    EXPECT_TENSOR_NEAR(own.out.values(), expected(whole[0].out, width), attention_tolerance);
    EXPECT_TENSOR_NEAR(own.dq.values(), expected(whole[0].dq, width), attention_tolerance);
    EXPECT_TENSOR_NEAR(own.dk.values(), expected(whole[0].dk, kv_width), attention_tolerance);
    EXPECT_TENSOR_NEAR(own.dv.values(), expected(whole[0].dv, kv_width), attention_tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(, SlicedAttention,
                         testing::Values(std::vector<Range>{{0, 4}, {4, 3}}, std::vector<Range>{{0, 3}, {3, 2}, {5, 2}},
                                         std::vector<Range>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}),
                         [](const auto& one) { return std::to_string(one.param.size()) + "_slices"; });

/// Attention of a slice in parts, each over a range of the earlier tokens or over the slice's own: as ranks share it.
class SharedAttention : public SlicedAttention {
 protected:
  /// The chunk of the earlier tokens with the sums of its gradients, or a part of it.
  static KeyValueChunk earlier(Rows& rows, Range range) {
    return {rows.k, rows.v, rows.k_sum, rows.v_sum, range.begin, range.length};
  }
};

TEST_P(SharedAttention, AddsUpToTheAttentionOfOneRank) {
  const Range split = GetParam().front();
  std::vector<Rows> alone{rows_of({0, split.length}), rows_of({split.length, tokens - split.length})};
  run(alone);
  std::vector<Rows> shared{rows_of({0, split.length}), rows_of({split.length, tokens - split.length})};
  Rows& own = shared[1];
  const std::int64_t queries = own.range.length;
  std::vector<std::vector<KeyValueChunk>> chunks_of_parts;
  for (std::size_t i = 1; i < GetParam().size(); ++i) {
    chunks_of_parts.push_back({earlier(shared[0], GetParam()[i])});
  }
  chunks_of_parts.push_back({{own.k, own.v, own.k_sum, own.v_sum}});

  std::vector<Tensor> outs(chunks_of_parts.size(), own.out);
  std::vector<Tensor> normalizers(chunks_of_parts.size(), own.log_sum_exp);
  std::vector<AttentionPart> parts;
  const auto shape_of_part = [&](std::size_t i) {
    AttentionShape shape = shape_of(queries, 0);
    shape.causal = i + 1 == chunks_of_parts.size();
    shape.key_tokens = shape.causal ? queries : chunks_of_parts[i].front().tokens;
    return shape;
  };
  for (std::size_t i = 0; i < chunks_of_parts.size(); ++i) {
    kernels_->attention(shape_of_part(i), outs[i], normalizers[i], own.q, chunks_of_parts[i]);
    parts.push_back({outs[i], normalizers[i]});
  }
  kernels_->merge_attention(own.out, own.log_sum_exp, parts);
  Tensor shift = own.log_sum_exp;
  kernels_->attention_shift(shift, own.upstream, own.out);
  std::vector<ConstMatrix> query_gradients;
  for (std::size_t i = 0; i < chunks_of_parts.size(); ++i) {
    kernels_->attention_part_gradient(shape_of_part(i), outs[i], own.upstream, own.log_sum_exp, shift, own.q,
                                      chunks_of_parts[i]);
    query_gradients.push_back(outs[i]);
  }
  kernels_->add_parts(own.dq, query_gradients);

  const Rows& expected = alone[1];
  EXPECT_TENSOR_NEAR(own.out.values(), expected.out.values(), attention_tolerance);
  EXPECT_TENSOR_NEAR(own.log_sum_exp.values(), expected.log_sum_exp.values(), attention_tolerance);
  EXPECT_TENSOR_NEAR(own.dq.values(), expected.dq.values(), attention_tolerance);
  EXPECT_TENSOR_NEAR(own.k_sum.values(), expected.dk.values(), attention_tolerance);
  EXPECT_TENSOR_NEAR(own.v_sum.values(), expected.dv.values(), attention_tolerance);
  EXPECT_TENSOR_NEAR(shared[0].k_sum.values(), alone[0].k_sum.values(), attention_tolerance);
  EXPECT_TENSOR_NEAR(shared[0].v_sum.values(), alone[0].v_sum.values(), attention_tolerance);
}

// The earlier tokens, then how they are shared.
INSTANTIATE_TEST_SUITE_P(, SharedAttention,
                         testing::Values(std::vector<Range>{{0, 4}, {0, 4}}, std::vector<Range>{{0, 4}, {0, 2}, {2, 2}},
                                         std::vector<Range>{{0, 5}, {0, 3}, {3, 1}, {4, 1}}),
                         [](const auto& one) { return std::to_string(one.param.size()) + "_parts"; });

TEST(AttentionChunks, ThatDoNotMakeUpTheShapeAreRefused) {
  const auto kernels = make_reference_kernels();
  const AttentionShape shape{.query_tokens = 2, .key_tokens = 5, .head_size = 2};
  Tensor two{DType::f64, 2, 2};
  Tensor three{DType::f64, 3, 2};
  Tensor statistic{DType::f64, 1, 2};
  const auto refused = [&](const std::vector<KeyValueChunk>& chunks) {
    EXPECT_THROW(kernels->attention(shape, two, statistic, two, chunks), Error);
    EXPECT_THROW(kernels->attention_gradient(shape, two, two, two, two, two, statistic, two, chunks), Error);
  };

  refused({});
  refused({{three, three}});                              // the queries' own keys are missing
  refused({{two, two}, {three, three}});                  // more keys in the newest chunk than queries
  refused({{three, three}, {three, three}, {two, two}});  // more keys than the shape has
  refused({{three, two}, {two, two}});
  // An earlier chunk has no sums to add to: good enough for the forward alone.
  const std::vector<KeyValueChunk> no_sums{{three, three}, {two, two}};
  EXPECT_NO_THROW(kernels->attention(shape, two, statistic, two, no_sums));
  EXPECT_THROW(kernels->attention_gradient(shape, two, two, two, two, two, statistic, two, no_sums), Error);
}

}  // namespace
}  // namespace penstock::test
