// SPDX-License-Identifier: Apache-2.0
//
// What one device has to compute and to move for a (micro-batch, slice), before any hardware makes seconds of it.
// Matrix products cost the same FLOPs in the forward pass, for inputs and for weights; attention has no weights.
#pragma once

#include <vector>

#include "base/units.hpp"
#include "cost/shape.hpp"

namespace penstock {

/// The three things that are done with a part of the model.
enum class WorkPart : std::uint8_t { forward, input_gradient, weight_gradient };

/// `count` products of [rows, inner] with [inner, columns].
struct Product {
  double rows = 0;
  double columns = 0;
  double inner = 0;
  double count = 1;
  double output_bytes = 2;  ///< moved for each element of the result: 8 where an fp32 sum is read and written

  Flops flops() const { return {2 * rows * columns * inner * count}; }
  /// Moved by one of them if every element is moved once, inputs of `input_bytes` each.
  double bytes(double input_bytes) const {
    return input_bytes * inner * (rows + columns) + output_bytes * rows * columns;
  }
};

struct Work {
  std::vector<Product> products;
  double traffic = 0;  ///< bytes that elementwise work and norms read and write
  Flops flops() const;
};

/// One layer without its attention: query, key and value; attention output; gate and up; down (or router and the
/// experts that are active); two norms, rotary positions, the activation, two residual adds.
Work layer_work(const CostShape& shape, WorkPart part);

/// What recomputation within the backward adds to the input gradient of one layer, its attention not included: for
/// `attention` the norm, the queries and their rotation; for `selective` gate, up and the activation; for `layers` the
/// forward up to the input of the last product, keys and values of slices excepted.
Work work_again(const CostShape& shape, Recompute recompute);

/// The embeddings; `share` of them is done here, 1 or 1 / ranks (vocabulary parallelism).
Work embedding_work(const CostShape& shape, WorkPart part, double share);

/// Final norm, head and loss; `share` as above.
Work head_work(const CostShape& shape, WorkPart part, double share);

/// The matrix products of the weight gradients of a backward stage, as the backward comes to them: that of the head (or
/// of the stage's share of it); of each layer, from the last to the first, (the router's,) down, gate with up,
/// attention output, query with key and value.
std::vector<Product> weight_gradient_products(const CostShape& shape, Stage stage);

/// Causal attention of one layer for queries of one slice over keys of `length` slices as long as it; the diagonal
/// slice counts half, so that of equal slices slice k has k + 1/2. Per sequence 4 x query_width x (S/n)^2 x length
/// FLOPs forward.
struct AttentionWork {
  Flops flops;
  double traffic = 0;  ///< bytes of scores that go through memory, without a fused kernel
};

/// A fused backward is 2.5 times the forward: it makes the scores again (Dao, FlashAttention-2, section 4.1). Without a
/// fused kernel it is twice the forward, no product stops at the diagonal, and the scores are moved four times forward
/// and seven times backward (products, masked softmax). None for weights.
AttentionWork attention_work(const CostShape& shape, double length, WorkPart part, bool fused);

/// Model FLOPs of one step over all replicas: causal attention, no recomputation.
Flops model_flops(const CostShape& shape, std::int32_t micro_batches);

/// The share of the peak of all devices (pipeline x tensor x context x data) that the model FLOPs of a step are.
double model_flops_utilization(const CostShape& shape, std::int32_t micro_batches, Seconds step, double peak);

}  // namespace penstock
