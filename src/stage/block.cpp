// SPDX-License-Identifier: Apache-2.0
#include "stage/block.hpp"

#include "base/error.hpp"
#include "stage/shared_attention.hpp"

namespace penstock {
namespace {

using Role = ParameterRole;
using Tensor = BlockTensor;

Norm attention_norm_of(const Block& block) {
  return {.in = block.input,
          .out = block[Tensor::attention_norm],
          .mean = block[Tensor::attention_norm_mean],
          .inverse = block[Tensor::attention_norm_inverse],
          .weight = block.parameters[Role::attention_norm_weight],
          .bias = block.parameters[Role::attention_norm_bias]};
}

Norm ffn_norm_of(const Block& block) {
  return {.in = block[Tensor::residual],
          .out = block[Tensor::ffn_norm],
          .mean = block[Tensor::ffn_norm_mean],
          .inverse = block[Tensor::ffn_norm_inverse],
          .weight = block.parameters[Role::ffn_norm_weight],
          .bias = block.parameters[Role::ffn_norm_bias]};
}

void attend(const Block& block) {
  if (block.shared != nullptr) return share_attention_forward(block);
  block.kernels.attention(attention_shape_of(block), block[Tensor::attention], block[Tensor::log_sum_exp],
                          block[Tensor::query], chunks_of(block));
}

void attend_backward(const Block& block) {
  if (block.shared != nullptr) return share_attention_backward(block);
  block.kernels.attention_gradient(attention_shape_of(block), block[Tensor::query_gradient],
                                   block[Tensor::key_gradient], block[Tensor::value_gradient],
                                   block[Tensor::attention_gradient], block[Tensor::attention],
                                   block[Tensor::log_sum_exp], block[Tensor::query], chunks_of(block));
}

void form_queries_keys_and_values(const Block& block, TensorSet wanted) {
  if (wanted.contains(Tensor::attention_norm)) {
    block.family.norm(block.kernels, attention_norm_of(block), block.shape.model.norm_epsilon);
  }
  if (wanted.contains(Tensor::query)) {
    product(block, Tensor::query, Tensor::attention_norm, Role::query_weight, Role::query_bias);
    block.family.rotate(block, Tensor::query, Kernels::Rotation::forward);
  }
  if (wanted.contains(Tensor::key)) {
    product(block, Tensor::key, Tensor::attention_norm, Role::key_weight, Role::key_bias);
    block.family.rotate(block, Tensor::key, Kernels::Rotation::forward);
  }
  if (wanted.contains(Tensor::value)) {
    product(block, Tensor::value, Tensor::attention_norm, Role::value_weight, Role::value_bias);
  }
}

void form_residual(const Block& block) {
  product(block, Tensor::residual, Tensor::attention, Role::attention_output_weight, Role::attention_output_bias);
  block.kernels.add(block[Tensor::residual], block.input, block[Tensor::residual]);
}

// The wanted tensors of the forward, in the order in which it makes them.
void form(const Block& block, TensorSet wanted) {
  form_queries_keys_and_values(block, wanted);
  if (wanted.contains(Tensor::attention)) attend(block);
  if (wanted.contains(Tensor::residual)) form_residual(block);
  if (wanted.contains(Tensor::ffn_norm)) {
    block.family.norm(block.kernels, ffn_norm_of(block), block.shape.model.norm_epsilon);
  }
  if (wanted.contains(Tensor::hidden)) block.family.feed_forward(block);
}

void backward_feed_forward(const Block& block) {
  block.kernels.linear_input_gradient(block[Tensor::hidden_gradient], block.output_gradient,
                                      block.parameters[Role::down_weight], Kernels::Write::overwrite);
  product_bias_gradient(block, Role::down_bias, block.output_gradient);
  block.family.feed_forward_gradient(block);
  block.family.norm_gradient(block.kernels, ffn_norm_of(block),
                             {.in = block[Tensor::residual_gradient],
                              .out = block[Tensor::norm_gradient],
                              .residual = block.output_gradient,
                              .weight = block.gradients[Role::ffn_norm_weight],
                              .bias = block.gradients[Role::ffn_norm_bias]});
}

// norm_gradient = dq Wq + dk Wk + dv Wv, and the three biases.
void backward_projections(const Block& block) {
  const auto branch = [&](Tensor gradient, Role weight, Role bias, Kernels::Write write) {
    block.kernels.linear_input_gradient(block[Tensor::norm_gradient], block[gradient], block.parameters[weight], write);
    product_bias_gradient(block, bias, block[gradient]);
  };
  branch(Tensor::query_gradient, Role::query_weight, Role::query_bias, Kernels::Write::overwrite);
  branch(Tensor::key_gradient, Role::key_weight, Role::key_bias, Kernels::Write::accumulate);
  branch(Tensor::value_gradient, Role::value_weight, Role::value_bias, Kernels::Write::accumulate);
}

void backward_attention(const Block& block) {
  block.kernels.linear_input_gradient(block[Tensor::attention_gradient], block[Tensor::residual_gradient],
                                      block.parameters[Role::attention_output_weight], Kernels::Write::overwrite);
  product_bias_gradient(block, Role::attention_output_bias, block[Tensor::residual_gradient]);
  attend_backward(block);
  block.family.rotate(block, Tensor::query_gradient, Kernels::Rotation::inverse);
  block.family.rotate(block, Tensor::key_gradient, Kernels::Rotation::inverse);
  backward_projections(block);
  block.family.norm_gradient(block.kernels, attention_norm_of(block),
                             {.in = block.input_gradient,
                              .out = block[Tensor::norm_gradient],
                              .residual = block[Tensor::residual_gradient],
                              .weight = block.gradients[Role::attention_norm_weight],
                              .bias = block.gradients[Role::attention_norm_bias]});
}

}  // namespace

AttentionShape attention_shape_of(const Block& block) {
  const StageShape& shape = block.shape;
  std::int64_t keys = shape.tokens;
  for (const KeyValueChunk& chunk : block.earlier) keys += chunk.k.rows / shape.sequences;
  return {.sequences = shape.sequences,
          .query_tokens = shape.tokens,
          .key_tokens = keys,
          .heads = shape.model.heads,
          .kv_heads = shape.model.kv_heads,
          .head_size = shape.model.head_size,
          .causal = true};
}

std::vector<KeyValueChunk> chunks_of(const Block& block) {
  std::vector<KeyValueChunk> chunks = block.earlier;
  chunks.push_back({block[Tensor::key], block[Tensor::value], block.later_key_gradient, block.later_value_gradient});
  return chunks;
}

void BlockTensors::place(const BlockSlots& slots, const KeptBuffers& buffers) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].rows > 0) tensors_[i] = at(slots[i], buffers);
  }
}

void BlockTensors::place(const BlockSlots& slots, std::byte* base) {
  place(slots, KeptBuffers{base, nullptr});
}

void product(const Block& block, BlockTensor out, BlockTensor in, ParameterRole weight, ParameterRole bias) {
  block.kernels.linear(block[out], block[in], block.parameters[weight], block.parameters[bias]);
}

void product_bias_gradient(const Block& block, ParameterRole bias, ConstMatrix out_gradient) {
  if (const Matrix gradient = block.gradients[bias]) block.kernels.bias_gradient(gradient, out_gradient);
}

void forward(const Block& block) {
  form(block, forward_tensors);
  if (!block.output) return;
  block.kernels.linear(block.output, block[Tensor::hidden], block.parameters[Role::down_weight],
                       block.parameters[Role::down_bias]);
  block.kernels.add(block.output, block[Tensor::residual], block.output);
}

void form_again(const Block& block, TensorSet tensors) {
  if (tensors.empty()) return;
  Block alone = block;
  alone.shared = nullptr;
  form(alone, tensors);
}

void backward_input(const Block& block) {
  backward_feed_forward(block);
  backward_attention(block);
}

std::vector<WeightProduct> weight_products(const FamilyMath& family) {
  std::vector<WeightProduct> products{{Role::down_weight, Tensor::output_gradient, Tensor::hidden}};
  const auto feed_forward = family.feed_forward_weight_products();
  products.insert(products.end(), feed_forward.begin(), feed_forward.end());
  products.push_back({Role::attention_output_weight, Tensor::residual_gradient, Tensor::attention});
  products.push_back({Role::query_weight, Tensor::query_gradient, Tensor::attention_norm});
  products.push_back({Role::key_weight, Tensor::key_gradient, Tensor::attention_norm});
  products.push_back({Role::value_weight, Tensor::value_gradient, Tensor::attention_norm});
  return products;
}

void backward_weight(const Block& block) {
  backward_weight(block, {0, static_cast<std::int64_t>(weight_products(block.family).size())});
}

void backward_weight(const Block& block, ProductRange range) {
  const auto products = weight_products(block.family);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const WeightProduct& product = products[static_cast<std::size_t>(i)];
    // The block's own output gradient need not lie with its other tensors.
    const bool of_output = product.out_gradient == Tensor::output_gradient;
    const ConstMatrix out_gradient = of_output ? block.output_gradient : ConstMatrix{block[product.out_gradient]};
    block.kernels.linear_weight_gradient(block.gradients[product.weight], out_gradient, block[product.in]);
  }
}

const FamilyMath& math_of(Family family) {
  switch (family) {
    case Family::llama:
      return llama_math();
    case Family::gpt2:
      return gpt2_math();
  }
  fail(ExitCode::internal, "stage: the model's family has no number {}", static_cast<int>(family));
}

}  // namespace penstock
