// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stage/passes.hpp"

namespace penstock {
namespace {

using Role = ParameterRole;

std::size_t number_of(BlockTensor tensor) {
  return static_cast<std::size_t>(tensor);
}

// Block `i` with what the forward kept inside it.
Block kept_block(const StageCall& call, std::int64_t i) {
  Block block = call.block(i);
  const BlockSlots& slots = call.layouts.activations.blocks[static_cast<std::size_t>(i)];
  block.gradients = {call.layouts.gradients.blocks[static_cast<std::size_t>(i)], call.buffers.gradients};
  block.tensors.place(slots, call.kept());
  return block;
}

void head_weight_gradient(const StageCall& call, ConstMatrix logits_gradient) {
  call.kernels.linear_weight_gradient(at(call.layouts.gradients.head, call.buffers.gradients), logits_gradient,
                                      at(call.layouts.activations.head.norm, call.kept()));
}

class BackwardPass {
 public:
  BackwardPass(const StageCall& call, double loss_scale, WeightPass weights)
      : call_{call}, loss_scale_{loss_scale}, weights_{weights} {}

  void run() {
    if (call_.shape.last) {
      run_head();
    } else if (weights_ == WeightPass::later) {
      keep_output_gradient();
    }
    for (std::int64_t i = call_.blocks() - 1; i >= 0; --i) {
      const Block block = block_at(i);
      form_again(block, call_.layouts.again);
      backward_input(block);
      if (weights_ == WeightPass::at_once) backward_weight(block);
    }
    if (call_.shape.first) run_embedding();
  }

 private:
  Matrix operand(std::int64_t i, BlockTensor tensor) const {
    return at(call_.layouts.weight_operands.blocks[static_cast<std::size_t>(i)][number_of(tensor)],
              call_.buffers.weight_operands);
  }

  // The gradient of the residual stream before block `i`; with i = blocks(), after the last block of the last stage.
  Matrix stream_gradient(std::int64_t i) const {
    if (i == 0 && !call_.shape.first) return at(call_.layouts.stream, call_.buffers.input_gradient);
    if (i > 0 && weights_ == WeightPass::later) return operand(i - 1, BlockTensor::output_gradient);
    return at(call_.layouts.backward_work.stream[static_cast<std::size_t>(i % 2)], call_.buffers.workspace);
  }

  ConstMatrix output_gradient(std::int64_t i) const {
    return i + 1 == call_.blocks() && !call_.shape.last ? at(call_.layouts.stream, call_.buffers.output_gradient)
                                                        : ConstMatrix{stream_gradient(i + 1)};
  }

  Block block_at(std::int64_t i) const {
    Block block = kept_block(call_, i);
    block.tensors.place(call_.layouts.backward_work.block, call_.buffers.workspace);
    if (weights_ == WeightPass::later) {
      block.tensors.place(call_.layouts.weight_operands.blocks[static_cast<std::size_t>(i)],
                          call_.buffers.weight_operands);
    }
    block.input = i == 0 && !call_.shape.first ? at(call_.layouts.stream, call_.buffers.input)
                                               : ConstMatrix{block[BlockTensor::input]};
    block.output_gradient = output_gradient(i);
    block.input_gradient = stream_gradient(i);
    place_key_value_gradients(block, i);
    return block;
  }

  Matrix key_value_sum(Slice slice, std::int64_t i, BlockTensor tensor, std::byte* base) const {
    const KeptLayout& layout = call_.slices.of(slice).key_value_gradients;
    return at(layout.blocks[static_cast<std::size_t>(i)][number_of(tensor)], base);
  }

  // The last slice's backward is the first: the sums of all others start with it.
  void place_key_value_gradients(Block& block, std::int64_t i) const {
    block.earlier = call_.earlier_chunks(&StageLayouts::activations, i);
    for (const Slice slice : all<Slice>(call_.buffers.slice.value())) {
      const auto index = static_cast<std::size_t>(slice.value());
      KeyValueChunk& chunk = block.earlier[index];
      std::byte* const base = call_.buffers.earlier[index].gradients;
      chunk.k_gradient = key_value_sum(slice, i, BlockTensor::key_gradient, base);
      chunk.v_gradient = key_value_sum(slice, i, BlockTensor::value_gradient, base);
      if (!call_.is_last_slice()) continue;
      call_.kernels.zero(chunk.k_gradient);
      call_.kernels.zero(chunk.v_gradient);
    }
    if (call_.is_last_slice()) return;
    std::byte* const own = call_.buffers.key_value_gradients;
    block.later_key_gradient = key_value_sum(call_.buffers.slice, i, BlockTensor::key_gradient, own);
    block.later_value_gradient = key_value_sum(call_.buffers.slice, i, BlockTensor::value_gradient, own);
  }

  // The buffer of the output gradient is free once I is done; W needs a copy of it.
  void keep_output_gradient() const {
    call_.kernels.copy(operand(call_.blocks() - 1, BlockTensor::output_gradient),
                       at(call_.layouts.stream, call_.buffers.output_gradient));
  }

  Matrix logits_gradient() const {
    return weights_ == WeightPass::later
               ? at(call_.layouts.weight_operands.head.logits_gradient, call_.buffers.weight_operands)
               : at(call_.layouts.backward_work.head.logits_gradient, call_.buffers.workspace);
  }

  void run_head() const {
    const HeadSlots& kept = call_.layouts.activations.head;
    const Matrix norm_gradient =
        at(call_.layouts.backward_work.block[number_of(BlockTensor::norm_gradient)], call_.buffers.workspace);
    call_.kernels.cross_entropy_gradient(logits_gradient(), at(kept.logits, call_.buffers.logits),
                                         at(kept.log_sum_exp, call_.buffers.logits),
                                         call_.numbers(call_.buffers.targets, "targets"), loss_scale_);
    call_.kernels.linear_input_gradient(norm_gradient, logits_gradient(), call_.head(), Kernels::Write::overwrite);
    if (weights_ == WeightPass::at_once) head_weight_gradient(call_, logits_gradient());
    run_final_norm(norm_gradient);
  }

  void run_final_norm(ConstMatrix norm_gradient) const {
    const HeadSlots& kept = call_.layouts.activations.head;
    const Norm norm{.in = at(kept.input, call_.kept()),
                    .mean = at(kept.mean, call_.kept()),
                    .inverse = at(kept.inverse, call_.kept()),
                    .weight = call_.parameters()[Role::final_norm_weight]};
    call_.family().norm_gradient(call_.kernels, norm,
                                 {.in = stream_gradient(call_.blocks()),
                                  .out = norm_gradient,
                                  .weight = call_.gradients()[Role::final_norm_weight],
                                  .bias = call_.gradients()[Role::final_norm_bias]});
  }

  void run_embedding() const {
    call_.kernels.embedding_gradient(
        call_.gradients()[Role::token_embedding], call_.gradients()[Role::position_embedding], stream_gradient(0),
        call_.numbers(call_.buffers.tokens, "tokens"), call_.shape.tokens, call_.first_position());
  }

  const StageCall& call_;
  double loss_scale_;
  WeightPass weights_;
};

}  // namespace

void run_backward_input(const StageCall& call, double loss_scale, WeightPass weights) {
  BackwardPass{call, loss_scale, weights}.run();
}

std::int64_t count_weight_products(const StageShape& shape) {
  const auto of_block = static_cast<std::int64_t>(weight_products(math_of(shape.model.family)).size());
  return (shape.last ? 1 : 0) + (shape.end.value() - shape.begin.value()) * of_block;
}

std::vector<std::int64_t> sizes_of_weight_products(const StageLayouts& layouts) {
  const auto size = [](const TensorSlot& slot) { return slot.rows * slot.columns; };
  std::vector<std::int64_t> sizes;
  if (layouts.shape.last) sizes.push_back(size(layouts.gradients.head));
  const auto of_block = weight_products(math_of(layouts.shape.model.family));
  const auto& blocks = layouts.gradients.blocks;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    for (const auto& product : of_block) sizes.push_back(size((*block)[static_cast<std::size_t>(product.weight)]));
  }
  return sizes;
}

void run_backward_weight(const StageCall& call, ProductRange products) {
  const KeptLayout& operands = call.layouts.weight_operands;
  const auto of_block = static_cast<std::int64_t>(weight_products(call.family()).size());
  std::int64_t first = call.shape.last ? 1 : 0;  // of the block's products
  if (products.begin < first && products.end > 0) {
    head_weight_gradient(call, at(operands.head.logits_gradient, call.buffers.weight_operands));
  }
  for (std::int64_t i = call.blocks() - 1; i >= 0; --i, first += of_block) {
    const ProductRange own{std::max(products.begin - first, std::int64_t{0}), std::min(products.end - first, of_block)};
    if (own.begin >= own.end) continue;
    Block block = kept_block(call, i);
    block.tensors.place(operands.blocks[static_cast<std::size_t>(i)], call.buffers.weight_operands);
    block.output_gradient = block[BlockTensor::output_gradient];
    backward_weight(block, own);
  }
}

}  // namespace penstock
