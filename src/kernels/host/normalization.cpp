// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/host/host_kernels.hpp"

namespace penstock::host {
namespace {

/// Rows whose weight gradients are summed by one task; a constant, as the sums' order follows from it.
constexpr std::int64_t partial_rows = 64;

template <class S>
const S* vector_of(const ConstMatrix& vector) {
  return vector.as<S>();
}

}  // namespace

std::int64_t norm_scratch_bytes(std::int64_t rows, std::int64_t columns) {
  const std::int64_t partials = divide_up(rows, partial_rows) * columns * std::int64_t{sizeof(float)};
  return 2 * round_up(partials, scratch_alignment);
}

void HostKernels::add_partials(Matrix gradient, float* partials, std::int64_t blocks) {
  if (blocks == 0) return;
  const std::int64_t width = gradient.columns;
  for_column_blocks(width, 512, [&](std::int64_t first, std::int64_t columns) {
    const Rows<float> total{partials + first, width};
    for (std::int64_t block = 1; block < blocks; ++block) {
      rows_->f32.accumulate({1, columns}, total, {partials + block * width + first, width});
    }
    rows_->f32.accumulate({1, columns}, {gradient.as<float>() + first, width}, {partials + first, width});
  });
}

void HostKernels::rms_norm(Matrix out, Matrix inverse_rms, ConstMatrix in, ConstMatrix weight, double epsilon) {
  expect("rms_norm", "in", in, out.rows, out.columns, out.type);
  expect("rms_norm", "weight", weight, 1, out.columns, out.type);
  expect("rms_norm", "inverse_rms", inverse_rms, 1, out.rows, DType::f32);
  with_storage(*rows_, "rms_norm", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.rms_norm({rows, out.columns}, rows_of<S>(out, first), inverse_rms.as<float>() + first,
                         rows_of<S>(in, first), vector_of<S>(weight), static_cast<float>(epsilon));
    });
  });
}

void HostKernels::rms_norm_gradient(Matrix in_gradient, Matrix weight_gradient, ConstMatrix out_gradient,
                                    ConstMatrix in, ConstMatrix inverse_rms, ConstMatrix weight, ConstMatrix residual) {
  const char* const name = "rms_norm_gradient";
  expect(name, "in_gradient", in_gradient, in.rows, in.columns, in.type);
  expect(name, "weight_gradient", weight_gradient, 1, in.columns, DType::f32);
  expect(name, "out_gradient", out_gradient, in.rows, in.columns, in.type);
  expect(name, "inverse_rms", inverse_rms, 1, in.rows, DType::f32);
  expect(name, "weight", weight, 1, in.columns, in.type);
  if (residual) expect(name, "residual", residual, in.rows, in.columns, in.type);
  const std::int64_t blocks = divide_up(in.rows, partial_rows);
  auto* const partials = scratch_.whole().take<float>(blocks * in.columns);
  with_storage(*rows_, name, in.type, [&]<class S>(const RowFunctions<S>& functions) {
    workers_->for_each(blocks, [&](std::int64_t block) {
      const std::int64_t first = block * partial_rows;
      functions.rms_norm_gradient({std::min(partial_rows, in.rows - first), in.columns}, rows_of<S>(in_gradient, first),
                                  partials + block * in.columns, rows_of<S>(out_gradient, first), rows_of<S>(in, first),
                                  inverse_rms.as<float>() + first, vector_of<S>(weight), rows_of<S>(residual, first));
    });
  });
  add_partials(weight_gradient, partials, blocks);
}

void HostKernels::layer_norm(Matrix out, Matrix mean, Matrix inverse_deviation, ConstMatrix in, ConstMatrix weight,
                             ConstMatrix bias, double epsilon) {
  expect("layer_norm", "in", in, out.rows, out.columns, out.type);
  expect("layer_norm", "weight", weight, 1, out.columns, out.type);
  expect("layer_norm", "bias", bias, 1, out.columns, out.type);
  expect("layer_norm", "mean", mean, 1, out.rows, DType::f32);
  expect("layer_norm", "inverse_deviation", inverse_deviation, 1, out.rows, DType::f32);
  with_storage(*rows_, "layer_norm", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.layer_norm({rows, out.columns}, rows_of<S>(out, first), mean.as<float>() + first,
                           inverse_deviation.as<float>() + first, rows_of<S>(in, first), vector_of<S>(weight),
                           vector_of<S>(bias), static_cast<float>(epsilon));
    });
  });
}

void HostKernels::layer_norm_gradient(Matrix in_gradient, Matrix weight_gradient, Matrix bias_gradient,
                                      ConstMatrix out_gradient, ConstMatrix in, ConstMatrix mean,
                                      ConstMatrix inverse_deviation, ConstMatrix weight, ConstMatrix residual) {
  const char* const name = "layer_norm_gradient";
  expect(name, "in_gradient", in_gradient, in.rows, in.columns, in.type);
  expect(name, "weight_gradient", weight_gradient, 1, in.columns, DType::f32);
  expect(name, "bias_gradient", bias_gradient, 1, in.columns, DType::f32);
  expect(name, "out_gradient", out_gradient, in.rows, in.columns, in.type);
  expect(name, "mean", mean, 1, in.rows, DType::f32);
  expect(name, "inverse_deviation", inverse_deviation, 1, in.rows, DType::f32);
  expect(name, "weight", weight, 1, in.columns, in.type);
  if (residual) expect(name, "residual", residual, in.rows, in.columns, in.type);
  const std::int64_t blocks = divide_up(in.rows, partial_rows);
  TaskScratch scratch = scratch_.whole();
  auto* const weight_partials = scratch.take<float>(blocks * in.columns);
  auto* const bias_partials = scratch.take<float>(blocks * in.columns);
  with_storage(*rows_, name, in.type, [&]<class S>(const RowFunctions<S>& functions) {
    workers_->for_each(blocks, [&](std::int64_t block) {
      const std::int64_t first = block * partial_rows;
      const std::int64_t partial = block * in.columns;
      functions.layer_norm_gradient({std::min(partial_rows, in.rows - first), in.columns},
                                    rows_of<S>(in_gradient, first), weight_partials + partial, bias_partials + partial,
                                    rows_of<S>(out_gradient, first), rows_of<S>(in, first), mean.as<float>() + first,
                                    inverse_deviation.as<float>() + first, vector_of<S>(weight),
                                    rows_of<S>(residual, first));
    });
  });
  add_partials(weight_gradient, weight_partials, blocks);
  add_partials(bias_gradient, bias_partials, blocks);
}

}  // namespace penstock::host
