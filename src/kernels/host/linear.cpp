// SPDX-License-Identifier: Apache-2.0
//
// Matrix products in tiles of fixed size. A tile of the result is one task: it goes through the depth in blocks,
//
//   f32 result, operands that oneDNN multiplies       : every block straight to the result, added from the second on;
//   bf16 result, one block, nothing to add            : straight to the result;
//   otherwise                                         : to an fp32 tile in scratch, rounded once into the result at the
//   end,
//
// and where oneDNN has no bf16 instructions, bf16 operands are widened to fp32 in scratch, block by block.
#include <algorithm>

#include "kernels/host/host_kernels.hpp"

namespace penstock::host {
namespace {

// The bits of a product depend on these (see Products), so they follow from nothing but the operation.
constexpr std::int64_t tile_rows = 256;
constexpr std::int64_t most_tile_columns = 768;
constexpr std::int64_t depth_block = 4096;
constexpr std::int64_t bias_columns = 64;

/// Measured: oneDNN's fp32 products with a plain right operand lose a quarter of their rate beyond 512 columns.
std::int64_t tile_columns_of(const TiledProduct& product) {
  return product.left.type == DType::bf16 ? most_tile_columns : 512;
}

std::int64_t depth_of(const TiledProduct& product) {
  return product.left_transposed ? product.left.rows : product.left.columns;
}

/// The part of an operand that a tile needs: `along` of its result dimension from `at`, `depth` from `depth_at`.
struct OperandBlock {
  const std::byte* data;
  std::int64_t rows;  ///< as stored
  std::int64_t columns;
  std::int64_t stride;
};

OperandBlock block_of(const ConstMatrix& operand, bool depth_is_rows, std::int64_t at, std::int64_t along,
                      std::int64_t depth_at, std::int64_t depth) {
  const std::int64_t row = depth_is_rows ? depth_at : at;
  const std::int64_t column = depth_is_rows ? at : depth_at;
  return {operand.data + (row * operand.stride + column) * size_of(operand.type), depth_is_rows ? depth : along,
          depth_is_rows ? along : depth, operand.stride};
}

OperandBlock widened(const RowTable& table, const OperandBlock& block, TaskScratch& scratch) {
  auto* const copy = scratch.take<float>(block.rows * block.columns);
  table.bf16.widen({block.rows, block.columns}, {copy, block.columns},
                   {reinterpret_cast<const BFloat16*>(block.data), block.stride});
  return {reinterpret_cast<const std::byte*>(copy), block.rows, block.columns, block.columns};
}

/// What one tile computes, and where.
struct Tile {
  std::int64_t row;
  std::int64_t column;
  std::int64_t rows;
  std::int64_t columns;
  Matrix target;  ///< the tile's part of the result, or the fp32 tile in scratch
  bool adds;
  bool biased;
  bool widens;
};

/// target (+)= the product over [depth_at, depth_at + depth).
void multiply_block(const TiledProduct& product, const Tile& tile, std::int64_t depth_at, std::int64_t depth,
                    const RowTable& table, Products& products, TaskScratch scratch) {
  OperandBlock left = block_of(product.left, product.left_transposed, tile.row, tile.rows, depth_at, depth);
  OperandBlock right = block_of(product.right, !product.right_transposed, tile.column, tile.columns, depth_at, depth);
  if (tile.widens) {
    left = widened(table, left, scratch);
    right = widened(table, right, scratch);
  }
  const ProductShape shape{.rows = tile.rows,
                           .columns = tile.columns,
                           .depth = depth,
                           .left_stride = left.stride,
                           .right_stride = right.stride,
                           .result_stride = tile.target.stride,
                           .operands = tile.widens ? DType::f32 : product.left.type,
                           .result = tile.target.type,
                           .left_transposed = product.left_transposed,
                           .right_transposed = product.right_transposed,
                           .adds = tile.adds || depth_at > 0,
                           .biased = tile.biased};
  const std::byte* bias = tile.biased ? product.bias.data + tile.column * size_of(product.bias.type) : nullptr;
  if (tile.biased && tile.widens) bias = widened(table, {bias, 1, tile.columns, tile.columns}, scratch).data;
  products.multiply(shape, {left.data, right.data, tile.target.data, bias}, scratch.rest());
}

void round_tile(const TiledProduct& product, const Tile& tile, const Matrix& result, const RowTable& table) {
  const auto* const bias = product.bias ? product.bias.as<BFloat16>() + tile.column : nullptr;
  table.bf16.finish({tile.rows, tile.columns}, rows_of<BFloat16>(result), rows_of<float>(ConstMatrix{tile.target}),
                    bias, product.adds);
}

}  // namespace

std::int64_t tile_scratch_bytes(const KernelLimits& limits) {
  const std::int64_t longest = std::max({limits.tokens, limits.width, limits.vocabulary});
  const std::int64_t rows = std::min(tile_rows, longest);
  const std::int64_t columns = std::min(most_tile_columns, longest);
  const std::int64_t depth = std::min(depth_block, longest);
  const auto floats = [](std::int64_t count) {
    return round_up(count * std::int64_t{sizeof(float)}, scratch_alignment);
  };
  return floats(rows * columns) + floats(rows * depth) + floats(columns * depth) + floats(columns) +
         product_scratch_bytes(rows, columns, depth);
}

void HostKernels::run_tile(const TiledProduct& product, std::int64_t row, std::int64_t column) {
  Tile tile{.row = row,
            .column = column,
            .rows = std::min(tile_rows, product.result.rows - row),
            .columns = std::min(tile_columns_of(product), product.result.columns - column),
            .target = product.result,
            .adds = product.adds,
            .biased = static_cast<bool>(product.bias),
            .widens = product.left.type == DType::bf16 && !multiplies_bf16_};
  tile.target.data += (row * product.result.stride + column) * size_of(product.result.type);
  const Matrix result = tile.target;
  const std::int64_t depth = depth_of(product);
  const bool direct = result.type == DType::f32 || (depth <= depth_block && !product.adds && !tile.widens);
  TaskScratch scratch = task_scratch();
  if (!direct) {
    auto* const data = reinterpret_cast<std::byte*>(scratch.take<float>(tile.rows * tile.columns));
    tile.target = Matrix{data, DType::f32, tile.rows, tile.columns};
    tile.adds = false;
    tile.biased = false;
  }
  for (std::int64_t at = 0; at < depth; at += depth_block) {
    multiply_block(product, tile, at, std::min(depth_block, depth - at), *rows_, products(), scratch);
    tile.biased = false;
  }
  if (!direct) round_tile(product, tile, result, *rows_);
}

void HostKernels::run_tiles(const TiledProduct& product) {
  const std::int64_t down = divide_up(product.result.rows, tile_rows);
  const std::int64_t width = tile_columns_of(product);
  const std::int64_t across = divide_up(product.result.columns, width);
  // Tiles of the same columns one after the other: they share the right operand, which is the larger one for the head.
  workers_->for_each(down * across,
                     [&](std::int64_t task) { run_tile(product, task % down * tile_rows, task / down * width); });
}

void HostKernels::linear(Matrix out, ConstMatrix in, ConstMatrix weight, ConstMatrix bias) {
  expect("linear", "in", in, out.rows, weight.columns, weight.type);
  expect("linear", "weight", weight, out.columns, in.columns, in.type);
  if (bias) expect("linear", "bias", bias, 1, out.columns, weight.type);
  require(out.type == weight.type || out.type == DType::f32, "linear: out has neither the operands' type nor f32");
  run_tiles({.result = out, .left = in, .right = weight, .bias = bias, .right_transposed = true});
}

void HostKernels::linear_input_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix weight, Write write) {
  const char* const name = "linear_input_gradient";
  expect(name, "in_gradient", in_gradient, out_gradient.rows, weight.columns, weight.type);
  expect(name, "out_gradient", out_gradient, in_gradient.rows, weight.rows, weight.type);
  run_tiles({.result = in_gradient, .left = out_gradient, .right = weight, .adds = write == Write::accumulate});
}

void HostKernels::linear_weight_gradient(Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in) {
  const char* const name = "linear_weight_gradient";
  expect(name, "weight_gradient", weight_gradient, out_gradient.columns, in.columns, DType::f32);
  expect(name, "out_gradient", out_gradient, in.rows, weight_gradient.rows, in.type);
  run_tiles({.result = weight_gradient, .left = out_gradient, .right = in, .left_transposed = true, .adds = true});
}

void HostKernels::bias_gradient(Matrix bias_gradient, ConstMatrix out_gradient) {
  expect("bias_gradient", "bias_gradient", bias_gradient, 1, out_gradient.columns, DType::f32);
  with_storage(*rows_, "bias_gradient", out_gradient.type, [&]<class S>(const RowFunctions<S>& functions) {
    for_column_blocks(out_gradient.columns, bias_columns, [&](std::int64_t first, std::int64_t columns) {
      functions.add_column_sums({out_gradient.rows, columns}, bias_gradient.as<float>() + first,
                                {out_gradient.as<S>() + first, out_gradient.stride});
    });
  });
}

}  // namespace penstock::host
