// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/products.hpp"

#include <array>
#include <unordered_map>

#include <dnnl.hpp>

#include "base/error.hpp"
#include "base/units.hpp"
#include "kernels/host/scratch.hpp"

namespace penstock::host {
namespace {

/// More shapes than a training run has; a program that goes through ever new shapes starts over.
constexpr std::size_t most_kept = 512;

struct ShapeHash {
  std::size_t operator()(const ProductShape& shape) const {
    const std::array<std::int64_t, 7> numbers{shape.rows,
                                              shape.columns,
                                              shape.depth,
                                              shape.left_stride,
                                              shape.right_stride,
                                              shape.result_stride,
                                              (static_cast<std::int64_t>(shape.operands) << 8) |
                                                  (static_cast<std::int64_t>(shape.result) << 4) |
                                                  (shape.left_transposed ? 8 : 0) | (shape.right_transposed ? 4 : 0) |
                                                  (shape.adds ? 2 : 0) | (shape.biased ? 1 : 0)};
    std::uint64_t hash = 0;
    for (const std::int64_t number : numbers) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29U;
    }
    return hash;
  }
};

dnnl::memory::data_type library_type(DType type) {
  switch (type) {
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::f64:
    case DType::i32:
      break;
  }
  fail(ExitCode::internal, "host kernels: matrix products take bf16 and f32");
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, DType type, std::int64_t stride, bool transposed) {
  return {
      {rows, columns}, library_type(type), transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1}};
}

/// A prepared product with the arguments that execute() takes; only their addresses change from call to call.
struct Product {
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  std::size_t scratch_bytes = 0;
};

Product prepare(const dnnl::engine& engine, const ProductShape& shape) {
  const auto left = describe(shape.rows, shape.depth, shape.operands, shape.left_stride, shape.left_transposed);
  const auto right = describe(shape.depth, shape.columns, shape.operands, shape.right_stride, shape.right_transposed);
  const auto result = describe(shape.rows, shape.columns, shape.result, shape.result_stride, false);
  const auto bias =
      shape.biased ? describe(1, shape.columns, shape.operands, shape.columns, false) : dnnl::memory::desc{};
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.adds) {
    dnnl::post_ops operations;
    operations.append_sum(1.0F);
    attributes.set_post_ops(operations);
  }
  const auto description =
      shape.biased ? dnnl::matmul::desc{left, right, bias, result} : dnnl::matmul::desc{left, right, result};
  const dnnl::matmul::primitive_desc chosen{description, attributes, engine};
  Product product{dnnl::matmul{chosen}, {}, chosen.scratchpad_desc().get_size()};
  product.arguments = {{DNNL_ARG_SRC, {left, engine, nullptr}},
                       {DNNL_ARG_WEIGHTS, {right, engine, nullptr}},
                       {DNNL_ARG_DST, {result, engine, nullptr}},
                       {DNNL_ARG_SCRATCHPAD, {chosen.scratchpad_desc(), engine, nullptr}}};
  if (shape.biased) product.arguments.emplace(DNNL_ARG_BIAS, dnnl::memory{bias, engine, nullptr});
  return product;
}

void run(Product& product, const dnnl::stream& stream, const ProductOperands& operands, std::byte* scratch) {
  // The library writes to the result and the scratch alone; its memory objects know no const.
  product.arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(operands.left));
  product.arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(operands.right));
  product.arguments.at(DNNL_ARG_DST).set_data_handle(operands.result);
  product.arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch);
  if (const auto bias = product.arguments.find(DNNL_ARG_BIAS); bias != product.arguments.end()) {
    bias->second.set_data_handle(const_cast<void*>(operands.bias));
  }
  product.primitive.execute(stream, product.arguments);
}

const char* name_of(dnnl::cpu_isa set) {
  switch (set) {
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "sse41";
  }
}

}  // namespace

struct Products::Implementation {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<ProductShape, Product, ShapeHash> kept;

  Product& find(const ProductShape& shape) {
    if (const auto found = kept.find(shape); found != kept.end()) return found->second;
    if (kept.size() >= most_kept) kept.clear();
    return kept.emplace(shape, prepare(engine, shape)).first->second;
  }
};

Products::Products() : implementation_{std::make_unique<Implementation>()} {
  // Each thread keeps its own primitives here. oneDNN's cache, which all threads would share behind locks that
  // ThreadSanitizer cannot see, would only keep them a second time.
  dnnl::set_primitive_cache_capacity(0);
}
Products::~Products() = default;
Products::Products(Products&&) noexcept = default;
Products& Products::operator=(Products&&) noexcept = default;

void Products::multiply(const ProductShape& shape, const ProductOperands& operands, std::span<std::byte> scratch) {
  if (shape.rows == 0 || shape.columns == 0) return;
  try {
    Product& product = implementation_->find(shape);
    require(product.scratch_bytes <= scratch.size(),
            "host kernels: oneDNN needs {} bytes of scratch for a product of {} x {} x {}, {} were planned",
            product.scratch_bytes, shape.rows, shape.depth, shape.columns, scratch.size());
    run(product, implementation_->stream, operands, scratch.data());
  } catch (const dnnl::error& error) {
    fail(ExitCode::internal, "host kernels: oneDNN refuses a product of {} x {} x {}: {}", shape.rows, shape.depth,
         shape.columns, error.what());
  }
}

std::int64_t product_scratch_bytes(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  const std::int64_t m = round_up(rows, 64);
  const std::int64_t n = round_up(columns, 64);
  const std::int64_t k = round_up(depth, 64);
  constexpr std::int64_t fixed = std::int64_t{512} << 10;
  return round_up((m * k + k * n + m * n) * 4 + fixed, scratch_alignment);
}

bool multiplies_bf16() {
  const auto set = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (set & needed) == needed;
}

std::string product_library() {
  const auto* version = dnnl::version();
  return fmt::format("oneDNN {}.{}.{}, {}", version->major, version->minor, version->patch,
                     name_of(dnnl::get_effective_cpu_isa()));
}

}  // namespace penstock::host
