// SPDX-License-Identifier: Apache-2.0
#include "stage/layout.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "stage/block.hpp"
#include "stage/layout_builder.hpp"
#include "stage/offload.hpp"

namespace penstock {
namespace {

using Tensor = BlockTensor;

// Adds tensors of one block under a common prefix.
class BlockBuilder {
 public:
  BlockBuilder(LayoutBuilder& builder, std::string prefix, std::int64_t rows)
      : builder_{builder}, prefix_{std::move(prefix)}, rows_{rows} {}
  void add(BlockTensor tensor, const char* name, DType type, std::int64_t columns) {
    slots_[static_cast<std::size_t>(tensor)] = builder_.add(prefix_ + name, type, rows_, columns);
  }
  void add_statistic(BlockTensor tensor, const char* name, DType type, std::int64_t count) {
    slots_[static_cast<std::size_t>(tensor)] = builder_.add(prefix_ + name, type, count, rows_);
  }
  BlockSlots take() { return std::move(slots_); }

 private:
  LayoutBuilder& builder_;
  std::string prefix_;
  std::int64_t rows_;
  BlockSlots slots_;
};

std::string prefix_of(const StageShape& shape, std::int64_t index) {
  return fmt::format("layers/{}/", shape.begin.value() + index);
}

bool is_llama(const StageShape& shape) {
  return shape.model.family == Family::llama;
}

// Those of the forward's tensors that are wanted and that the family has.
void add_forward(BlockBuilder& block, const StageShape& shape, TensorSet wanted) {
  const ModelSpec& model = shape.model;
  const auto add = [&](Tensor tensor, const char* name, std::int64_t columns) {
    if (wanted.contains(tensor)) block.add(tensor, name, shape.storage, columns);
  };
  add(Tensor::input, "input", model.hidden);
  add(Tensor::attention_norm, "attention_norm", model.hidden);
  add(Tensor::query, "query", model.query_width());
  add(Tensor::key, "key", model.kv_width());
  add(Tensor::value, "value", model.kv_width());
  add(Tensor::attention, "attention", model.query_width());
  add(Tensor::residual, "residual", model.hidden);
  add(Tensor::ffn_norm, "ffn_norm", model.hidden);
  if (is_llama(shape)) add(Tensor::gate, "gate", model.ffn);
  add(Tensor::up, "up", model.ffn);
  add(Tensor::hidden, "hidden", model.ffn);
  const auto add_statistic = [&](Tensor tensor, const char* name, std::int64_t count) {
    if (wanted.contains(tensor)) block.add_statistic(tensor, name, accumulation_of(shape.storage), count);
  };
  if (!is_llama(shape)) {
    add_statistic(Tensor::attention_norm_mean, "attention_norm_mean", 1);
    add_statistic(Tensor::ffn_norm_mean, "ffn_norm_mean", 1);
  }
  add_statistic(Tensor::attention_norm_inverse, "attention_norm_inverse", 1);
  add_statistic(Tensor::ffn_norm_inverse, "ffn_norm_inverse", 1);
  add_statistic(Tensor::log_sum_exp, "log_sum_exp", model.heads);
}

// The gradients at the outputs of a block's products: operands of its weight gradients.
void add_operands(BlockBuilder& block, const StageShape& shape) {
  const ModelSpec& model = shape.model;
  if (is_llama(shape)) block.add(BlockTensor::gate_gradient, "gate_gradient", shape.storage, model.ffn);
  block.add(BlockTensor::up_gradient, "up_gradient", shape.storage, model.ffn);
  block.add(BlockTensor::residual_gradient, "residual_gradient", shape.storage, model.hidden);
  block.add(BlockTensor::query_gradient, "query_gradient", shape.storage, model.query_width());
  block.add(BlockTensor::key_gradient, "key_gradient", shape.storage, model.kv_width());
  block.add(BlockTensor::value_gradient, "value_gradient", shape.storage, model.kv_width());
}

void add_final_norm(LayoutBuilder& builder, const StageShape& shape, HeadSlots& head) {
  const DType accumulation = accumulation_of(shape.storage);
  head.norm = builder.add("final_norm/output", shape.storage, shape.rows(), shape.model.hidden);
  if (!is_llama(shape)) head.mean = builder.add("final_norm/mean", accumulation, 1, shape.rows());
  head.inverse = builder.add("final_norm/inverse", accumulation, 1, shape.rows());
}

void add_logits(LayoutBuilder& builder, const StageShape& shape, HeadSlots& head) {
  const DType accumulation = accumulation_of(shape.storage);
  head.logits = builder.add("logits", accumulation, shape.rows(), shape.model.vocabulary);
  head.log_sum_exp = builder.add("logits/log_sum_exp", accumulation, 1, shape.rows());
  head.losses = builder.add("losses", accumulation, 1, shape.rows());
}

TensorSlot add_logits_gradient(LayoutBuilder& builder, const StageShape& shape) {
  return builder.add("logits_gradient", shape.storage, shape.rows(), shape.model.vocabulary);
}

KeptLayout activations_of(const StageShape& shape, TensorSet again, HeadSlots logits) {
  LayoutBuilder builder;
  KeptLayout kept;
  for (std::int64_t i = 0; i < shape.end.value() - shape.begin.value(); ++i) {
    BlockBuilder block{builder, prefix_of(shape, i), shape.rows()};
    const bool has_input = shape.first || i > 0;
    add_forward(block, shape, forward_tensors - again - (has_input ? TensorSet{} : TensorSet{BlockTensor::input}));
    kept.blocks.push_back(block.take());
  }
  kept.head = std::move(logits);
  if (shape.last) {
    kept.head.input = builder.add("final_norm/input", shape.storage, shape.rows(), shape.model.hidden);
    add_final_norm(builder, shape, kept.head);
  }
  kept.buffer = builder.finish();
  return kept;
}

// What W reads of the forward's tensors: the inputs of the products.
TensorSet product_inputs(const StageShape& shape) {
  TensorSet inputs;
  for (const WeightProduct& product : weight_products(math_of(shape.model.family))) inputs.insert(product.in);
  return inputs;
}

KeptLayout weight_operands_of(const StageShape& shape, TensorSet again) {
  LayoutBuilder builder;
  KeptLayout kept;
  const TensorSet read_again = again & product_inputs(shape);
  for (std::int64_t i = 0; i < shape.end.value() - shape.begin.value(); ++i) {
    BlockBuilder block{builder, prefix_of(shape, i), shape.rows()};
    block.add(BlockTensor::output_gradient, "output_gradient", shape.storage, shape.model.hidden);
    add_operands(block, shape);
    add_forward(block, shape, read_again);
    kept.blocks.push_back(block.take());
  }
  if (shape.last) kept.head.logits_gradient = add_logits_gradient(builder, shape);
  kept.buffer = builder.finish();
  return kept;
}

// Keys and values of every layer, or what is of their shape.
KeptLayout key_values_of(const StageShape& shape, std::array<BlockTensor, 2> tensors, const std::string& suffix,
                         DType type) {
  LayoutBuilder builder;
  KeptLayout kept;
  for (std::int64_t i = 0; i < shape.end.value() - shape.begin.value(); ++i) {
    BlockBuilder block{builder, prefix_of(shape, i), shape.rows()};
    block.add(tensors[0], ("key" + suffix).c_str(), type, shape.model.kv_width());
    block.add(tensors[1], ("value" + suffix).c_str(), type, shape.model.kv_width());
    kept.blocks.push_back(block.take());
  }
  kept.buffer = builder.finish();
  return kept;
}

std::array<TensorSlot, 2> add_streams(LayoutBuilder& builder, const StageShape& shape, const std::string& name) {
  return {builder.add(name + "/0", shape.storage, shape.rows(), shape.model.hidden),
          builder.add(name + "/1", shape.storage, shape.rows(), shape.model.hidden)};
}

WorkLayout forward_work_of(const StageShape& shape) {
  LayoutBuilder builder;
  WorkLayout work;
  work.stream = add_streams(builder, shape, "stream");
  const std::int64_t shared = builder.mark();
  BlockBuilder block{builder, "block/", shape.rows()};
  add_forward(block, shape, forward_tensors - TensorSet{BlockTensor::input});
  work.block = block.take();
  if (shape.last) {
    builder.rewind(shared);
    add_final_norm(builder, shape, work.head);
    add_logits(builder, shape, work.head);
  }
  work.buffer = builder.finish();
  return work;
}

WorkLayout backward_work_of(const StageShape& shape, TensorSet again) {
  LayoutBuilder builder;
  WorkLayout work;
  work.stream = add_streams(builder, shape, "stream_gradient");
  BlockBuilder block{builder, "block/", shape.rows()};
  block.add(BlockTensor::norm_gradient, "norm_gradient", shape.storage, shape.model.hidden);
  const std::int64_t shared = builder.mark();
  add_operands(block, shape);
  block.add(BlockTensor::hidden_gradient, "hidden_gradient", shape.storage, shape.model.ffn);
  block.add(BlockTensor::attention_gradient, "attention_gradient", shape.storage, shape.model.query_width());
  add_forward(block, shape, again);
  work.block = block.take();
  if (shape.last) {
    builder.rewind(shared);
    work.head.logits_gradient = add_logits_gradient(builder, shape);
  }
  work.buffer = builder.finish();
  return work;
}

bool is_tied_on_one_stage(const StageShape& shape) {
  return shape.model.tie_embeddings && shape.first && shape.last;
}

// Files `slot` under its role. A tied last stage's own table, the last of its parameters, is the head.
void file(ParameterLayout& layout, const StageShape& shape, const Parameter& parameter, const TensorSlot& slot) {
  const bool in_block = parameter.name.starts_with("layers/");
  ParameterSlots& slots =
      in_block ? layout.blocks[static_cast<std::size_t>(parameter.layer.value() - shape.begin.value())] : layout.beside;
  slots[static_cast<std::size_t>(parameter.role)] = slot;
  const ParameterRole head = shape.model.tie_embeddings ? ParameterRole::token_embedding : ParameterRole::head_weight;
  if (shape.last && parameter.role == head) layout.head = slot;
}

ParameterLayout parameters_layout_of(const StageShape& shape, DType type) {
  LayoutBuilder builder;
  ParameterLayout layout;
  layout.blocks.resize(static_cast<std::size_t>(shape.end.value() - shape.begin.value()));
  for (const Parameter& p : parameters_of_stage(shape.model, shape.begin, shape.end, shape.first, shape.last)) {
    file(layout, shape, p, builder.add(p.name, type, p.rows, p.columns));
  }
  layout.buffer = builder.finish();
  return layout;
}

// As the parameters, in the accumulation type; a table with two uses on this stage has a second gradient at the end.
ParameterLayout gradients_layout_of(const StageShape& shape) {
  LayoutBuilder builder;
  ParameterLayout layout = parameters_layout_of(shape, accumulation_of(shape.storage));
  if (!is_tied_on_one_stage(shape)) return layout;
  for (const TensorSlot& slot : layout.buffer.tensors) builder.add(slot.name, slot.type, slot.rows, slot.columns);
  layout.head = builder.add("head/weight", accumulation_of(shape.storage), shape.model.vocabulary, shape.model.hidden);
  layout.buffer = builder.finish();
  return layout;
}

BufferLayout stream_of(const StageShape& shape) {
  LayoutBuilder builder;
  builder.add("stream", shape.storage, shape.rows(), shape.model.hidden);
  return builder.finish();
}

}  // namespace

TensorSet formed_again(const StageShape& shape) {
  switch (shape.recompute) {
    case Recompute::none:
    case Recompute::full:
      return {};
    case Recompute::attention:
      return {Tensor::attention_norm, Tensor::attention_norm_mean, Tensor::attention_norm_inverse, Tensor::query};
    case Recompute::selective:
      return {Tensor::gate, Tensor::up, Tensor::hidden};
    case Recompute::layers:
      return forward_tensors - TensorSet{Tensor::input} -
             (shape.slices > 1 ? TensorSet{Tensor::key, Tensor::value} : TensorSet{});
  }
  fail(ExitCode::internal, "stage: no way to recompute has number {}", static_cast<int>(shape.recompute));
}

StageLayouts::StageLayouts(const StageShape& of, TensorSet formed_again)
    : shape{of},
      again{formed_again},
      parameters{parameters_layout_of(shape, shape.storage)},
      gradients{gradients_layout_of(shape)},
      weight_operands{weight_operands_of(shape, again)},
      key_values{key_values_of(shape, {BlockTensor::key, BlockTensor::value}, "", shape.storage)},
      key_value_gradients{key_values_of(shape, {BlockTensor::key_gradient, BlockTensor::value_gradient},
                                        "_gradient_sum", accumulation_of(shape.storage))},
      forward_work{forward_work_of(shape)},
      backward_work{backward_work_of(shape, again)},
      stream_buffer{stream_of(shape)},
      stream{stream_buffer.tensors.front()} {
  LayoutBuilder builder;
  HeadSlots head;
  if (shape.last) add_logits(builder, shape, head);
  logits = builder.finish();
  activations = activations_of(shape, again, std::move(head));
}

Bytes StageLayouts::workspace() const {
  return std::max(forward_work.buffer.bytes, backward_work.buffer.bytes);
}

SliceLayouts::SliceLayouts(const StageShape& shape) : shape_{shape}, tokens_{tokens_layout(shape)} {
  for (const Slice slice : all<Slice>(shape.slices)) {
    ranges_.push_back(shape.tokens_of(slice));
    StageShape one = shape;
    one.tokens = ranges_.back().count;
    one.slices = 1;
    if (layouts_.count(one.tokens) == 0) layouts_.emplace(one.tokens, StageLayouts{one, formed_again(shape)});
  }
  if (shape.offload_ratio == 0) return;
  const auto stay = shape.slices > 1 ? StayingTensors::keys_and_values : StayingTensors::none;
  const auto chosen = choose_offloadable(longest().activations, shape.offload_ratio, stay);
  for (auto& [tokens, layouts] : layouts_) layouts.offloadable = split_offloadable(layouts.activations, chosen);
}

const TokenRange& SliceLayouts::range_of(Slice slice) const {
  require(slice >= Slice{0} && slice.value() < shape_.slices, "stage: no slice {} of {}", slice, shape_.slices);
  return ranges_[static_cast<std::size_t>(slice.value())];
}

const StageLayouts& SliceLayouts::of(Slice slice) const {
  return layouts_.at(range_of(slice).count);
}

BufferLayout tokens_layout(const StageShape& shape) {
  LayoutBuilder builder;
  if (shape.first) builder.add("tokens", DType::i32, 1, shape.rows());
  if (shape.last) builder.add("targets", DType::i32, 1, shape.rows());
  return builder.finish();
}

DType accumulation_of(DType storage) {
  return storage == DType::f64 ? DType::f64 : DType::f32;
}

Matrix at(const TensorSlot& slot, std::byte* base) {
  if (slot.rows == 0) return {};
  require(base != nullptr, "stage: no buffer was given for {}", slot.name);
  return {base + slot.offset.value, slot.type, slot.rows, slot.columns};
}

Matrix at(const TensorSlot& slot, const KeptBuffers& buffers) {
  return at(slot, slot.offloadable ? buffers.offloadable : buffers.activations);
}

ConstMatrix at(const TensorSlot& slot, const std::byte* base) {
  if (slot.rows == 0) return {};
  require(base != nullptr, "stage: no buffer was given for {}", slot.name);
  return {base + slot.offset.value, slot.type, slot.rows, slot.columns};
}

}  // namespace penstock
