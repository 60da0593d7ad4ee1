// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "stage/passes.hpp"

namespace penstock {
namespace {

class ForwardPass {
 public:
  ForwardPass(const StageCall& call, ForwardKind kind) : call_{call}, kind_{kind} {}

  double run() {
    if (call_.shape.first) embed();
    if (Matrix out = checkpoint(0); out.data != nullptr) call_.kernels.copy(out, block_input(0));
    for (std::int64_t i = 0; i < call_.blocks(); ++i) forward(block(i));
    if (!call_.shape.last) return 0;
    if (call_.buffers.targets == nullptr && kind_ == ForwardKind::nothing) {
      if (call_.buffers.logits != nullptr) form_wanted_logits();
      return 0;
    }
    final_norm();
    form_logits();
    return loss();
  }

 private:
  bool keeps() const { return kind_ != ForwardKind::nothing; }

  // The residual stream before block `i`; with i = blocks(), after the last. Empty if nobody wants it.
  Matrix stream(std::int64_t i) const {
    const StageLayouts& layouts = call_.layouts;
    if (i == call_.blocks() && !call_.shape.last) {
      return kind_ == ForwardKind::recompute ? Matrix{} : at(layouts.stream, call_.buffers.output);
    }
    if (const Matrix out = checkpoint(i); i > 0 && out.data != nullptr) return out;
    if (!keeps()) return at(layouts.forward_work.stream[static_cast<std::size_t>(i % 2)], call_.buffers.workspace);
    if (i == call_.blocks()) return at(layouts.activations.head.input, call_.kept());
    return at(layouts.activations.blocks[static_cast<std::size_t>(i)][static_cast<std::size_t>(BlockTensor::input)],
              call_.kept());
  }

  // Where the stream before block `i` is left for a backward stage that begins there; empty where none does.
  Matrix checkpoint(std::int64_t i) const {
    if (kind_ != ForwardKind::nothing) return {};
    const std::vector<Layer>& layers = call_.shape.checkpoints;
    const auto found = std::find(layers.begin(), layers.end(), Layer{call_.shape.begin.value() + static_cast<int>(i)});
    if (found == layers.end()) return {};
    return at(call_.layouts.stream, call_.buffers.checkpoints.at(static_cast<std::size_t>(found - layers.begin())));
  }

  ConstMatrix block_input(std::int64_t i) const {
    return i == 0 && !call_.shape.first ? at(call_.layouts.stream, call_.buffers.input) : ConstMatrix{stream(i)};
  }

  Block block(std::int64_t i) const {
    Block block = call_.block(i);
    block.tensors.place(call_.layouts.forward_work.block, call_.buffers.workspace);
    if (keeps()) {
      block.tensors.place(call_.layouts.activations.blocks[static_cast<std::size_t>(i)], call_.kept());
    } else if (!call_.is_last_slice()) {
      block.tensors.place(call_.layouts.key_values.blocks[static_cast<std::size_t>(i)], call_.buffers.key_values);
    }
    block.earlier = call_.earlier_chunks(keeps() ? &StageLayouts::activations : &StageLayouts::key_values, i);
    block.input = block_input(i);
    block.output = stream(i + 1);
    return block;
  }

  void embed() const {
    call_.kernels.embedding(
        stream(0), call_.numbers(call_.buffers.tokens, "tokens"), call_.parameters()[ParameterRole::token_embedding],
        call_.parameters()[ParameterRole::position_embedding], call_.shape.tokens, call_.first_position());
  }

  Matrix norm_tensor(TensorSlot HeadSlots::*slot) const {
    return keeps() ? at(call_.layouts.activations.head.*slot, call_.kept())
                   : at(call_.layouts.forward_work.head.*slot, call_.buffers.workspace);
  }

  Matrix logits_tensor(TensorSlot HeadSlots::*slot) const {
    return keeps() || call_.buffers.logits != nullptr
               ? at(call_.layouts.activations.head.*slot, call_.buffers.logits)
               : at(call_.layouts.forward_work.head.*slot, call_.buffers.workspace);
  }

  void final_norm() const {
    const Norm norm{.in = stream(call_.blocks()),
                    .out = norm_tensor(&HeadSlots::norm),
                    .mean = norm_tensor(&HeadSlots::mean),
                    .inverse = norm_tensor(&HeadSlots::inverse),
                    .weight = call_.parameters()[ParameterRole::final_norm_weight],
                    .bias = call_.parameters()[ParameterRole::final_norm_bias]};
    call_.family().norm(call_.kernels, norm, call_.shape.model.norm_epsilon);
  }

  void form_logits() const {
    call_.kernels.linear(logits_tensor(&HeadSlots::logits), norm_tensor(&HeadSlots::norm), call_.head(), {});
  }

  void form_wanted_logits() const {
    const std::int64_t row = call_.buffers.wanted_row;
    require(row >= 0 && row < call_.shape.rows(), "stage: no row {} of {} whose logits are wanted", row,
            call_.shape.rows());
    final_norm();
    const Matrix norm = norm_tensor(&HeadSlots::norm);
    call_.kernels.linear({call_.buffers.logits, accumulation_of(call_.shape.storage), 1, call_.shape.model.vocabulary},
                         ConstMatrix{norm.data + row * norm.columns * size_of(norm.type), norm.type, 1, norm.columns},
                         call_.head(), {});
  }

  double loss() const {
    const Matrix losses = logits_tensor(&HeadSlots::losses);
    call_.kernels.cross_entropy(losses, logits_tensor(&HeadSlots::log_sum_exp), logits_tensor(&HeadSlots::logits),
                                call_.numbers(call_.buffers.targets, "targets"));
    double sum = 0;
    for (std::int64_t t = 0; t < losses.columns; ++t) {
      sum += losses.type == DType::f64 ? losses.as<double>()[t] : static_cast<double>(losses.as<float>()[t]);
    }
    return sum;
  }

  const StageCall& call_;
  ForwardKind kind_;
};

}  // namespace

double run_forward(const StageCall& call, ForwardKind kind) {
  return ForwardPass{call, kind}.run();
}

}  // namespace penstock
