// SPDX-License-Identifier: Apache-2.0
#include "stage/stage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "stage/layout.hpp"
#include "stage/passes.hpp"

namespace penstock {
namespace {

const StageShape& checked(const StageShape& shape) {
  check(shape.model);
  require(shape.begin < shape.end && shape.begin >= Layer{0} && shape.end <= Layer{shape.model.layers},
          "stage: layers {} to {} are no part of the model's {}", shape.begin, shape.end, shape.model.layers);
  require(shape.sequences > 0 && shape.tokens > 0, "stage: {} sequences of {} tokens", shape.sequences, shape.tokens);
  require(shape.slices > 0 && shape.slices <= shape.tokens, "stage: {} slices of {} tokens", shape.slices,
          shape.tokens);
  require(shape.model.family != Family::gpt2 || shape.tokens <= shape.model.positions,
          "stage: sequences of {} tokens need as many positions; the model has {}", shape.tokens,
          shape.model.positions);
  return shape;
}

KernelLimits limits_of(const StageShape& shape) {
  const ModelSpec& model = shape.model;
  const std::int64_t longest = shape.tokens_of(Slice{0}).count;
  return {.tokens = shape.sequences * longest,
          .width = std::max({model.hidden, model.ffn, model.query_width(), model.kv_width()}),
          .vocabulary = shape.last ? model.vocabulary : 0,
          .attention = {.sequences = shape.sequences,
                        .query_tokens = longest,
                        .key_tokens = shape.tokens,
                        .heads = model.heads,
                        .kv_heads = model.kv_heads,
                        .head_size = model.head_size},
          .storage = shape.storage};
}

// Gives the kernels the workspace behind the stage's own part. Every call begins so: other stages bind theirs.
StageCall begin_call(Kernels& kernels, const StageShape& shape, const SliceLayouts& slices,
                     const StageBuffers& buffers) {
  const std::int64_t scratch = kernels.scratch_bytes(limits_of(shape)).value;
  const StageLayouts& layouts = slices.of(buffers.slice);
  require(buffers.workspace != nullptr, "stage: no workspace was given");
  std::byte* const behind = buffers.workspace + layouts.workspace().value;
  kernels.bind_scratch({behind, static_cast<std::size_t>(scratch)});
  StageCall call{kernels, slices, layouts, layouts.shape, buffers, {}};
  if (buffers.partners != nullptr) {
    const auto bytes = static_cast<std::size_t>(sharing_bytes(shape).value);
    std::byte* const memory = behind + round_up(scratch, buffer_alignment);
    call.shared.emplace(SharedAttention{*buffers.partners, shape, {memory, bytes}});
  }
  return call;
}

}  // namespace

ConstMatrix StageCall::numbers(const std::int32_t* data, const char* name) const {
  require(data != nullptr, "stage: no {} were given", name);
  return {reinterpret_cast<const std::byte*>(data), DType::i32, 1, shape.rows()};
}

Block StageCall::block(std::int64_t index) const {
  return {.kernels = kernels,
          .shape = shape,
          .family = family(),
          .parameters = {layouts.parameters.blocks[static_cast<std::size_t>(index)], buffers.parameters},
          .first_position = first_position(),
          .shared = shared && index < shared->partners.layers ? &*shared : nullptr};
}

std::vector<KeyValueChunk> StageCall::earlier_chunks(KeptLayout StageLayouts::*layout, std::int64_t index) const {
  require(buffers.earlier.size() == static_cast<std::size_t>(buffers.slice.value()),
          "stage: slice {} was given {} earlier ones", buffers.slice, buffers.earlier.size());
  std::vector<KeyValueChunk> chunks;
  for (const Slice slice : all<Slice>(buffers.slice.value())) {
    const BlockSlots& slots = (slices.of(slice).*layout).blocks[static_cast<std::size_t>(index)];
    const std::byte* base = buffers.earlier[static_cast<std::size_t>(slice.value())].keys_and_values;
    chunks.push_back({at(slots[static_cast<std::size_t>(BlockTensor::key)], base),
                      at(slots[static_cast<std::size_t>(BlockTensor::value)], base)});
  }
  return chunks;
}

StageMath::StageMath(const StageShape& shape)
    : shape_{checked(shape)}, layouts_{std::make_shared<const SliceLayouts>(shape_)} {}

BufferLayout StageMath::layout(BufferKind kind) const {
  const StageLayouts& longest = layouts_->longest();
  switch (kind) {
    case BufferKind::parameters:
    case BufferKind::backward_parameters:
      return longest.parameters.buffer;
    case BufferKind::gradients:
      return longest.gradients.buffer;
    case BufferKind::tokens:
      return layouts_->tokens();
    case BufferKind::workspace: {
      BufferLayout both = longest.forward_work.buffer;
      const auto& more = longest.backward_work.buffer.tensors;
      both.tensors.insert(both.tensors.end(), more.begin(), more.end());
      both.bytes = longest.workspace();
      return both;
    }
    case BufferKind::input:
    case BufferKind::checkpoint:
    case BufferKind::input_gradient:
      return shape_.first ? BufferLayout{} : longest.stream_buffer;
    case BufferKind::output:
    case BufferKind::output_gradient:
      return shape_.last ? BufferLayout{} : longest.stream_buffer;
    case BufferKind::activations:
      return longest.activations.buffer;
    case BufferKind::logits:
      return longest.logits;
    case BufferKind::weight_operands:
      return longest.weight_operands.buffer;
    case BufferKind::key_value_gradients:
      return shape_.slices > 1 ? longest.key_value_gradients.buffer : BufferLayout{};
    case BufferKind::key_values:
      return shape_.slices > 1 ? longest.key_values.buffer : BufferLayout{};
    case BufferKind::offloadable:
    case BufferKind::optimizer_states:
      return {};
  }
  fail(ExitCode::internal, "stage: no layout for buffer kind {}", static_cast<int>(kind));
}

StageBytes StageMath::bytes(const Kernels& kernels) const {
  StageBytes bytes;
  for (int kind = 0; kind < buffer_kind_count; ++kind) {
    bytes[static_cast<std::size_t>(kind)] = layout(static_cast<BufferKind>(kind)).bytes;
  }
  const std::int64_t scratch = round_up(kernels.scratch_bytes(limits_of(shape_)).value, buffer_alignment);
  bytes[static_cast<std::size_t>(BufferKind::workspace)] += Bytes{scratch} + sharing_bytes(shape_);
  return bytes;
}

std::optional<TensorSlot> StageMath::tied_head_gradient() const {
  if (!shape_.first || !shape_.last || !shape_.model.tie_embeddings) return std::nullopt;
  return layouts_->longest().gradients.head;
}

TensorSlot StageMath::logits_in_workspace() const {
  return layouts_->longest().forward_work.head.logits;
}

void StageMath::forward(Kernels& kernels, const StageBuffers& buffers, Keep keep, double* loss_sum) const {
  const StageCall call = begin_call(kernels, shape_, *layouts_, buffers);
  const double sum = run_forward(call, keep == Keep::activations ? ForwardKind::keep : ForwardKind::nothing);
  if (shape_.last && loss_sum != nullptr) *loss_sum = sum;
}

void StageMath::recompute(Kernels& kernels, const StageBuffers& buffers) const {
  run_forward(begin_call(kernels, shape_, *layouts_, buffers), ForwardKind::recompute);
}

void StageMath::backward_input(Kernels& kernels, const StageBuffers& buffers, double loss_scale) const {
  run_backward_input(begin_call(kernels, shape_, *layouts_, buffers), loss_scale, WeightPass::later);
}

void StageMath::backward_weight(Kernels& kernels, const StageBuffers& buffers) const {
  backward_weight(kernels, buffers, {0, weight_products()});
}

void StageMath::backward_weight(Kernels& kernels, const StageBuffers& buffers, ProductRange products) const {
  run_backward_weight(begin_call(kernels, shape_, *layouts_, buffers), products);
}

std::int64_t StageMath::weight_products() const {
  return count_weight_products(shape_);
}

std::vector<std::int64_t> StageMath::weight_product_sizes() const {
  return sizes_of_weight_products(layouts_->longest());
}

void StageMath::backward(Kernels& kernels, const StageBuffers& buffers, double loss_scale) const {
  run_backward_input(begin_call(kernels, shape_, *layouts_, buffers), loss_scale, WeightPass::at_once);
}

}  // namespace penstock
