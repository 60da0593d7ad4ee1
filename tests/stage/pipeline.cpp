// SPDX-License-Identifier: Apache-2.0
#include "pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>

#include "kernels/reference/values.hpp"

namespace penstock::test {
namespace {

double element_of(const TensorSlot& slot, std::byte* base, std::int64_t index) {
  return reference::element(matrix_of(slot, base), index / slot.columns, index % slot.columns);
}

}  // namespace

Memory::Memory(Bytes bytes) : size_{static_cast<std::size_t>(bytes.value)} {
  data_.reset(static_cast<std::byte*>(::operator new (size_, std::align_val_t{buffer_alignment})));
  fill(std::byte{0xFF});
}

void Memory::fill(std::byte value) const {
  std::fill_n(data_.get(), size_, value);
}

void Memory::Free::operator()(std::byte* data) const {
  ::operator delete (data, std::align_val_t{buffer_alignment});
}

KernelsUnderTest::KernelsUnderTest(KernelKind kind, std::int32_t threads) {
  if (kind == KernelKind::reference) {
    kernels = make_reference_kernels();
    return;
  }
  workers = std::make_unique<Workers>(threads);
  kernels = make_host_kernels(*workers);
}

const char* name_of(KernelKind kind) {
  return kind == KernelKind::reference ? "reference" : "host";
}

ModelSpec small_llama() {
  return {.family = Family::llama,
          .layers = 3,
          .hidden = 10,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 6,
          .ffn = 14,
          .vocabulary = 11};
}

ModelSpec small_gpt2() {
  return {.family = Family::gpt2,
          .layers = 3,
          .hidden = 10,
          .heads = 2,
          .kv_heads = 2,
          .head_size = 5,
          .ffn = 14,
          .vocabulary = 11,
          .positions = 7};
}

double test_value(const Parameter& parameter, std::int64_t number, std::int64_t index) {
  const std::int64_t residue = (31 * index * index + 7919 * index + 10477 * number + 5) % 2003;
  return parameter.init_constant + static_cast<double>(residue) / 2048.0 - 0.5;
}

std::vector<double> whole_gradient(const Gradients& gradients, const std::string& name, bool tied) {
  std::vector<double> sum = gradients.at(name);
  if (!tied || name != "embedding/token/weight") return sum;
  const std::vector<double>& head = gradients.at("head/weight");
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += head[i];
  return sum;
}

double norm_of(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

const TensorSlot* find_tensor(const BufferLayout& layout, const std::string& name) {
  for (const TensorSlot& slot : layout.tensors) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

Matrix matrix_of(const TensorSlot& slot, std::byte* base) {
  return {base + slot.offset.value, slot.type, slot.rows, slot.columns};
}

Pipeline::OneStage::OneStage(const StageShape& shape, const Kernels& kernels) : math{shape} {
  for (const Bytes bytes : math.bytes(kernels)) {
    memories.emplace_back();
    for (std::int32_t slice = 0; slice < shape.slices; ++slice) memories.back().emplace_back(bytes);
  }
}

std::int64_t Pipeline::layer_count(std::size_t stage) const {
  return shape_.layers_per_stage.empty() ? shape_.model.layers : shape_.layers_per_stage[stage];
}

Pipeline::Pipeline(const PipelineShape& shape, Kernels& kernels) : shape_{shape}, kernels_{kernels} {
  std::int32_t begin = 0;
  const std::size_t count = std::max<std::size_t>(1, shape.layers_per_stage.size());
  for (std::size_t stage = 0; stage < count; ++stage) {
    const auto end = static_cast<std::int32_t>(begin + layer_count(stage));
    stages_.push_back(
        std::make_unique<OneStage>(StageShape{.model = shape.model,
                                              .begin = Layer{begin},
                                              .end = Layer{end},
                                              .first = stage == 0,
                                              .last = stage + 1 == count,
                                              .sequences = shape.sequences,
                                              .tokens = shape.tokens,
                                              .storage = shape.storage,
                                              .slices = shape.slices,
                                              .key_cost = shape.key_cost,
                                              .offload_ratio = shape.offload_ratio,
                                              .sharing = shape.sharing.empty() ? SharingLimits{} : shape.sharing[stage],
                                              .recompute = shape.recompute},
                                   kernels));
    begin = end;
  }
  std::int64_t number = 0;
  for (const Parameter& parameter : parameters_of(shape.model)) {
    for (std::int64_t i = 0; i < parameter.size(); ++i) {
      set_parameter(parameter.name, i, test_value(parameter, number, i));
    }
    ++number;
  }
  const StageShape& of_stage = stages_.front()->math.shape();
  for (const Slice slice : all<Slice>(shape.slices)) {
    const TokenRange range = of_stage.tokens_of(slice);
    for (std::int64_t row = 0; row < shape.sequences * range.count; ++row) {
      const std::int64_t t = row / range.count * shape.tokens + range.begin + row % range.count;
      tokens_.push_back(static_cast<std::int32_t>((3 * t * t + 5 * t + 1) % shape.model.vocabulary));
      targets_.push_back(t % 5 == 3 ? -1 : static_cast<std::int32_t>((7 * t + 2) % shape.model.vocabulary));
    }
  }
}

std::size_t Pipeline::first_row(Slice slice) const {
  return static_cast<std::size_t>(shape_.sequences * stages_.front()->math.shape().tokens_of(slice).begin);
}

void Pipeline::mask_targets(Slice slice) {
  const auto begin = targets_.begin() + static_cast<std::ptrdiff_t>(first_row(slice));
  std::fill_n(begin, shape_.sequences * stages_.front()->math.shape().tokens_of(slice).count, -1);
}

void Pipeline::set_parameter(const std::string& name, std::int64_t index, double value) {
  for (const auto& stage : stages_) {
    const BufferLayout layout = stage->math.layout(BufferKind::parameters);
    if (const TensorSlot* slot = find_tensor(layout, name)) {
      reference::set_element(matrix_of(*slot, stage->memory(BufferKind::parameters).data()), index / slot->columns,
                             index % slot->columns, value);
    }
  }
}

double Pipeline::parameter(const std::string& name, std::int64_t index) const {
  for (const auto& stage : stages_) {
    const BufferLayout layout = stage->math.layout(BufferKind::parameters);
    if (const TensorSlot* slot = find_tensor(layout, name)) {
      return element_of(*slot, stage->memory(BufferKind::parameters).data(), index);
    }
  }
  throw std::runtime_error{"no parameter " + name};
}

// A stage's input is the output memory of the stage before, and so on: no copies.
StageBuffers Pipeline::buffers(std::size_t stage, Slice slice) const {
  const OneStage& here = *stages_[stage];
  const auto data = [&](BufferKind kind) { return here.memory(kind, slice).data(); };
  StageBuffers buffers{.slice = slice,
                       .parameters = here.memory(BufferKind::parameters).data(),
                       .gradients = here.memory(BufferKind::gradients).data(),
                       .activations = data(BufferKind::activations),
                       .offloadable = data(BufferKind::offloadable),
                       .weight_operands = data(BufferKind::weight_operands),
                       .workspace = here.memory(BufferKind::workspace).data()};
  if (stage > 0) {
    buffers.input = stages_[stage - 1]->memory(BufferKind::output, slice).data();
    buffers.input_gradient = data(BufferKind::input_gradient);
  } else {
    buffers.tokens = tokens_.data() + first_row(slice);
  }
  if (stage + 1 < stages_.size()) {
    buffers.output = data(BufferKind::output);
    buffers.output_gradient = stages_[stage + 1]->memory(BufferKind::input_gradient, slice).data();
  } else {
    buffers.logits = data(BufferKind::logits);
    buffers.targets = targets_.data() + first_row(slice);
  }
  if (slice.value() + 1 < shape_.slices) buffers.key_value_gradients = data(BufferKind::key_value_gradients);
  for (const Slice earlier : all<Slice>(slice.value())) {
    buffers.earlier.push_back({here.memory(BufferKind::activations, earlier).data(),
                               here.memory(BufferKind::key_value_gradients, earlier).data()});
  }
  return buffers;
}

StageBuffers Pipeline::buffers_to_keep_nothing(std::size_t stage, Slice slice) const {
  StageBuffers given = buffers(stage, slice);
  given.activations = given.offloadable = given.logits = nullptr;
  given.key_value_gradients = nullptr;
  const OneStage& here = *stages_[stage];
  if (slice.value() + 1 < shape_.slices) given.key_values = here.memory(BufferKind::key_values, slice).data();
  for (const Slice earlier : all<Slice>(slice.value())) {
    given.earlier[static_cast<std::size_t>(earlier.value())] = {here.memory(BufferKind::key_values, earlier).data(),
                                                                nullptr};
  }
  return given;
}

void Pipeline::spoil_workspaces() {
  for (const auto& stage : stages_) stage->memory(BufferKind::workspace).fill(std::byte{0xFF});
}

double Pipeline::forward(StageMath::Keep keep) {
  double sum = 0;
  for (const Slice slice : all<Slice>(shape_.slices)) {
    double loss = 0;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      spoil_workspaces();
      const StageBuffers given =
          keep == StageMath::Keep::nothing ? buffers_to_keep_nothing(stage, slice) : buffers(stage, slice);
      stages_[stage]->math.forward(kernels_, given, keep, &loss);
    }
    sum += loss;
  }
  return sum;
}

void Pipeline::backward(Backward how, double loss_scale) {
  for (std::int32_t slice = shape_.slices; slice-- > 0;) {
    for (std::size_t stage = stages_.size(); stage-- > 0;) backward(how, loss_scale, stage, Slice{slice});
  }
}

void Pipeline::backward(Backward how, double loss_scale, std::size_t stage, Slice slice) {
  spoil_workspaces();
  StageBuffers given = buffers(stage, slice);
  const StageMath& math = stages_[stage]->math;
  if (how == Backward::whole) {
    given.weight_operands = nullptr;
    math.backward(kernels_, given, loss_scale);
    return;
  }
  math.backward_input(kernels_, given, loss_scale);
  // W may come late: by then only activations and operands are there.
  spoil_workspaces();
  if (stage + 1 < stages_.size()) stages_[stage + 1]->memory(BufferKind::input_gradient, slice).fill(std::byte{0xFF});
  given.input = nullptr;
  given.output_gradient = nullptr;
  given.logits = nullptr;
  given.key_value_gradients = nullptr;
  given.earlier.clear();
  math.backward_weight(kernels_, given);
}

void Pipeline::recompute_all() {
  for (const auto& stage : stages_) {
    for (const Slice slice : all<Slice>(shape_.slices)) {
      stage->memory(BufferKind::activations, slice).fill(std::byte{0xFF});
      stage->memory(BufferKind::offloadable, slice).fill(std::byte{0xFF});
      stage->memory(BufferKind::logits, slice).fill(std::byte{0xFF});
    }
  }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    for (const Slice slice : all<Slice>(shape_.slices)) {
      spoil_workspaces();
      stages_[stage]->math.recompute(kernels_, buffers(stage, slice));
    }
  }
}

double Pipeline::run(Backward how, double loss_scale) {
  zero_gradients();
  const bool keeps = shape_.recompute != Recompute::full;
  const double loss = forward(keeps ? StageMath::Keep::activations : StageMath::Keep::nothing);
  if (!keeps) recompute_all();
  backward(how, loss_scale);
  return loss;
}

void Pipeline::zero_gradients() {
  for (const auto& stage : stages_) stage->memory(BufferKind::gradients).fill(std::byte{0});
}

Gradients Pipeline::gradients() const {
  Gradients gradients;
  for (const auto& stage : stages_) {
    const StageShape& shape = stage->math.shape();
    for (const TensorSlot& slot : stage->math.layout(BufferKind::gradients).tensors) {
      const bool is_copy = slot.name == "embedding/token/weight" && !shape.first;
      std::vector<double>& values = gradients[is_copy ? "head/weight" : slot.name];
      for (std::int64_t i = 0; i < slot.rows * slot.columns; ++i) {
        values.push_back(element_of(slot, stage->memory(BufferKind::gradients).data(), i));
      }
    }
  }
  return gradients;
}

std::int64_t Pipeline::counted_targets() const {
  return std::count_if(targets_.begin(), targets_.end(), [](std::int32_t target) { return target >= 0; });
}

}  // namespace penstock::test
