// SPDX-License-Identifier: Apache-2.0
//
// What makes one attention of its parts. Each element is added up in floats in the order of the parts, and rounded
// once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/host/attention_blocks.hpp"

namespace penstock::host {
namespace {

/// Columns of a row that are added up at once.
constexpr std::int64_t columns_at_once = 64;

std::int64_t head_size_of(std::string_view operation, const ConstMatrix& out, const ConstMatrix& statistic) {
  require(statistic.rows > 0 && out.columns % statistic.rows == 0, "{}: {} columns are no {} heads", operation,
          out.columns, statistic.rows);
  expect(operation, "the statistic of each head", statistic, statistic.rows, out.rows, DType::f32);
  return out.columns / statistic.rows;
}

/// Element (head, row) of a statistic.
float& at(const Matrix& statistic, std::int64_t head, std::int64_t row) {
  return statistic.as<float>()[head * statistic.stride + row];
}
float at(const ConstMatrix& statistic, std::int64_t head, std::int64_t row) {
  return statistic.as<float>()[head * statistic.stride + row];
}

float merged_log_sum_exp(std::span<const AttentionPart> parts, std::int64_t head, std::int64_t row) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const AttentionPart& part : parts) largest = std::max(largest, at(part.log_sum_exp, head, row));
  float sum = 0;
  for (const AttentionPart& part : parts) sum += std::exp(at(part.log_sum_exp, head, row) - largest);
  return largest + std::log(sum);
}

/// out[first .. first + count) of one row = round(sum of weight(part) * part), in the order of the parts.
template <class S, class Weight, class RowOf>
void add_up(const RowFunctions<S>& functions, S* out, std::int64_t first, std::int64_t count, std::size_t parts,
            const RowOf& row_of, const Weight& weight) {
  for (std::int64_t begin = first; begin < first + count; begin += columns_at_once) {
    const std::int64_t columns = std::min(columns_at_once, first + count - begin);
    float sum[columns_at_once] = {};
    for (std::size_t part = 0; part < parts; ++part) {
      const float* const from = row_of(part) + begin;
      const float factor = weight(part);
      for (std::int64_t i = 0; i < columns; ++i) sum[i] += factor * from[i];
    }
    functions.finish({1, columns}, {out + begin, columns}, {sum, columns}, nullptr, false);
  }
}

}  // namespace

void HostKernels::merge_attention(Matrix out, Matrix log_sum_exp, std::span<const AttentionPart> parts) {
  const char* const name = "merge_attention";
  const std::int64_t size = head_size_of(name, out, log_sum_exp);
  for (const AttentionPart& part : parts) {
    expect(name, "the out of a part", part.out, out.rows, out.columns, DType::f32);
    expect(name, "the log_sum_exp of a part", part.log_sum_exp, log_sum_exp.rows, out.rows, DType::f32);
  }
  const auto merge_row = [&]<class S>(const RowFunctions<S>& functions, std::int64_t row) {
    for (std::int64_t head = 0; head < log_sum_exp.rows; ++head) {
      const float whole = merged_log_sum_exp(parts, head, row);
      at(log_sum_exp, head, row) = whole;
      add_up(
          functions, rows_of<S>(out, row).data, head * size, size, parts.size(),
          [&](std::size_t part) { return rows_of<float>(parts[part].out, row).data; },
          [&](std::size_t part) { return std::exp(at(parts[part].log_sum_exp, head, row) - whole); });
    }
  };
  with_storage(*rows_, name, out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t row = first; row < first + rows; ++row) merge_row(functions, row);
    });
  });
}

void HostKernels::attention_shift(Matrix shift, ConstMatrix out_gradient, ConstMatrix out) {
  const char* const name = "attention_shift";
  const std::int64_t size = head_size_of(name, out, shift);
  expect(name, "out_gradient", out_gradient, out.rows, out.columns, out.type);
  with_storage(*rows_, name, out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t head = 0; head < shift.rows; ++head) {
        const auto head_of = [&](const ConstMatrix& matrix) {
          return Rows<const S>{rows_of<S>(matrix, first).data + head * size, matrix.stride};
        };
        functions.dot_rows({rows, size}, &at(shift, head, first), head_of(out_gradient), head_of(out));
      }
    });
  });
}

void HostKernels::add_parts(Matrix out, std::span<const ConstMatrix> parts) {
  for (const ConstMatrix& part : parts) expect("add_parts", "a part", part, out.rows, out.columns, DType::f32);
  with_storage(*rows_, "add_parts", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t row = first; row < first + rows; ++row) {
        add_up(
            functions, rows_of<S>(out, row).data, 0, out.columns, parts.size(),
            [&](std::size_t part) { return rows_of<float>(parts[part], row).data; }, [](std::size_t) { return 1.0F; });
      }
    });
  });
}

}  // namespace penstock::host
