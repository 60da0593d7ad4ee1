// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/host_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace host {
namespace {

/// Elements of one task of row-wise work: some tens of microseconds, well above the cost of a task.
constexpr std::int64_t elements_per_task = std::int64_t{64} << 10;

const RowTable& row_table() {
  switch (host_instruction_set()) {
    case InstructionSet::baseline:
      return baseline_rows;
    case InstructionSet::avx2:
      return avx2_rows;
    case InstructionSet::avx512:
    case InstructionSet::avx512_bf16:
    case InstructionSet::amx:
      break;
  }
  return avx512_rows;
}

std::string_view name_of(const RowTable& table) {
  if (&table == &avx512_rows) return "avx512";
  return &table == &avx2_rows ? "avx2" : "baseline";
}

}  // namespace

void expect(std::string_view operation, std::string_view operand, const ConstMatrix& matrix, std::int64_t rows,
            std::int64_t columns, DType type) {
  require(matrix.rows == rows && matrix.columns == columns, "{}: {} is {} x {}, expected {} x {}", operation, operand,
          matrix.rows, matrix.columns, rows, columns);
  require(matrix.type == type, "{}: {} has another element type than the operation expects", operation, operand);
}

HostKernels::HostKernels(Workers& workers)
    : workers_{&workers},
      rows_{&row_table()},
      multiplies_bf16_{multiplies_bf16()},
      products_(static_cast<std::size_t>(workers.threads())) {}

std::string HostKernels::description() const {
  return fmt::format("host ({}, row-wise {}, {} thread{})", product_library(), name_of(*rows_), workers_->threads(),
                     workers_->threads() == 1 ? "" : "s");
}

Bytes HostKernels::scratch_bytes(const KernelLimits& limits) const {
  const std::int64_t per_thread = std::max(tile_scratch_bytes(limits), attention_scratch_bytes(limits.attention));
  return Bytes{std::max(per_thread * workers_->threads(), norm_scratch_bytes(limits.tokens, limits.width)) +
               scratch_alignment};
}

void HostKernels::bind_scratch(std::span<std::byte> scratch) {
  scratch_.bind(scratch, workers_->threads());
}

void HostKernels::for_row_blocks(std::int64_t rows, std::int64_t columns,
                                 const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t height = std::max<std::int64_t>(1, elements_per_task / std::max<std::int64_t>(1, columns));
  workers_->for_each(divide_up(rows, height), [&](std::int64_t task) {
    const std::int64_t first = task * height;
    body(first, std::min(height, rows - first));
  });
}

void HostKernels::for_column_blocks(std::int64_t columns, std::int64_t width,
                                    const std::function<void(std::int64_t, std::int64_t)>& body) {
  workers_->for_each(divide_up(columns, width), [&](std::int64_t task) {
    const std::int64_t first = task * width;
    body(first, std::min(width, columns - first));
  });
}

void HostKernels::add(Matrix out, ConstMatrix a, ConstMatrix b) {
  expect("add", "a", a, out.rows, out.columns, out.type);
  expect("add", "b", b, out.rows, out.columns, out.type);
  with_storage(*rows_, "add", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.add({rows, out.columns}, rows_of<S>(out, first), rows_of<S>(a, first), rows_of<S>(b, first));
    });
  });
}

void HostKernels::swiglu(Matrix out, ConstMatrix gate, ConstMatrix up) {
  expect("swiglu", "gate", gate, out.rows, out.columns, out.type);
  expect("swiglu", "up", up, out.rows, out.columns, out.type);
  with_storage(*rows_, "swiglu", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.swiglu({rows, out.columns}, rows_of<S>(out, first), rows_of<S>(gate, first), rows_of<S>(up, first));
    });
  });
}

void HostKernels::swiglu_gradient(Matrix gate_gradient, Matrix up_gradient, ConstMatrix out_gradient, ConstMatrix gate,
                                  ConstMatrix up) {
  expect("swiglu_gradient", "gate_gradient", gate_gradient, gate.rows, gate.columns, gate.type);
  expect("swiglu_gradient", "up_gradient", up_gradient, gate.rows, gate.columns, gate.type);
  expect("swiglu_gradient", "out_gradient", out_gradient, gate.rows, gate.columns, gate.type);
  expect("swiglu_gradient", "up", up, gate.rows, gate.columns, gate.type);
  with_storage(*rows_, "swiglu_gradient", gate.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(gate.rows, gate.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.swiglu_gradient({rows, gate.columns}, rows_of<S>(gate_gradient, first), rows_of<S>(up_gradient, first),
                                rows_of<S>(out_gradient, first), rows_of<S>(gate, first), rows_of<S>(up, first));
    });
  });
}

void HostKernels::gelu(Matrix out, ConstMatrix in) {
  expect("gelu", "in", in, out.rows, out.columns, out.type);
  with_storage(*rows_, "gelu", out.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.gelu({rows, out.columns}, rows_of<S>(out, first), rows_of<S>(in, first));
    });
  });
}

void HostKernels::gelu_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix in) {
  expect("gelu_gradient", "in_gradient", in_gradient, in.rows, in.columns, in.type);
  expect("gelu_gradient", "out_gradient", out_gradient, in.rows, in.columns, in.type);
  with_storage(*rows_, "gelu_gradient", in.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_row_blocks(in.rows, in.columns, [&](std::int64_t first, std::int64_t rows) {
      functions.gelu_gradient({rows, in.columns}, rows_of<S>(in_gradient, first), rows_of<S>(out_gradient, first),
                              rows_of<S>(in, first));
    });
  });
}

void HostKernels::zero(Matrix out) {
  const std::int64_t element = size_of(out.type);
  for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
    for (std::int64_t row = first; row < first + rows; ++row) {
      std::memset(out.data + row * out.stride * element, 0, static_cast<std::size_t>(out.columns * element));
    }
  });
}

void HostKernels::copy(Matrix out, ConstMatrix in) {
  expect("copy", "in", in, out.rows, out.columns, out.type);
  const std::int64_t element = size_of(out.type);
  for_row_blocks(out.rows, out.columns, [&](std::int64_t first, std::int64_t rows) {
    for (std::int64_t row = first; row < first + rows; ++row) {
      std::memcpy(out.data + row * out.stride * element, in.data + row * in.stride * element,
                  static_cast<std::size_t>(out.columns * element));
    }
  });
}

}  // namespace host

std::unique_ptr<Kernels> make_host_kernels(Workers& workers) {
  return std::make_unique<host::HostKernels>(workers);
}

}  // namespace penstock
