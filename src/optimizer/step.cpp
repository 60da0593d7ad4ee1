// SPDX-License-Identifier: Apache-2.0
#include "optimizer/step.hpp"

#include <cmath>

#include "base/error.hpp"

namespace penstock {
namespace {

/// The factors of one step for parameters that decay, and for those that do not.
class FactorsByDecay {
 public:
  FactorsByDecay(const HostStage& stage, const AdamWFactors& factors)
      : stage_{stage}, decayed_{factors}, undecayed_{factors} {
    undecayed_.decay = 0.0F;
  }
  const AdamWFactors& of(const StatePiece& state) const {
    const auto index = static_cast<std::size_t>(state.piece.parameter);
    return stage_.shape().parameters[index].parameter.decays ? decayed_ : undecayed_;
  }

 private:
  const HostStage& stage_;
  AdamWFactors decayed_;
  AdamWFactors undecayed_;
};

AdamWState behind(const AdamWState& state, std::int64_t elements) {
  return {state.master + elements, state.first_moment + elements, state.second_moment + elements};
}

std::size_t index_in(const std::vector<StatePiece>& pieces, const StatePiece& piece) {
  return static_cast<std::size_t>(&piece - pieces.data());
}

}  // namespace

AdamWFactors adamw_factors(const OptimizerOptions& options, double learning_rate, std::int64_t adam_step,
                           float clip_factor) {
  require(adam_step >= 1, "AdamW updates are counted from 1, not {}", adam_step);
  const auto [beta1, beta2] = options.betas;
  const auto t = static_cast<double>(adam_step);
  AdamWFactors factors;
  factors.gradient = clip_factor;
  factors.beta1 = static_cast<float>(beta1);
  factors.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  factors.beta2 = static_cast<float>(beta2);
  factors.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  factors.step_size = static_cast<float>(learning_rate / (1.0 - std::pow(beta1, t)));
  factors.inverse_root_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t)));
  factors.epsilon = static_cast<float>(options.epsilon);
  factors.decay = static_cast<float>(learning_rate * options.weight_decay);
  return factors;
}

void step(HostStage& stage, const AdamWFactors& factors, Workers& workers, std::int64_t tile) {
  const FactorsByDecay by_decay{stage, factors};
  const VectorLoops& loops = vector_loops();
  const DType storage = stage.shape().storage;
  const bool keeps_previous = stage.shape().keeps_previous;
  for_each_tile(stage.state(), tile, workers, [&](const StatePiece& state, std::int64_t first, std::int64_t count) {
    AdamWArrays arrays{behind(state, first), stage.gradient(state.piece).data() + first};
    if (keeps_previous) arrays.next = behind(stage.other_state()[index_in(stage.state(), state)], first);
    std::byte* copy = stage.working_copy(state.piece).data() + first * size_of(storage);
    if (storage == DType::bf16) {
      loops.adamw_bf16(by_decay.of(state), arrays, reinterpret_cast<std::uint16_t*>(copy), count);
    } else {
      loops.adamw_fp32(by_decay.of(state), arrays, reinterpret_cast<float*>(copy), count);
    }
  });
  if (keeps_previous) stage.swap_states();
}

void take_back(HostStage& stage, const AdamWFactors& factors, Workers& workers, std::int64_t tile) {
  if (stage.shape().keeps_previous) return stage.swap_states();
  const FactorsByDecay by_decay{stage, factors};
  for_each_tile(stage.state(), tile, workers, [&](const StatePiece& state, std::int64_t first, std::int64_t count) {
    const float* gradient = stage.gradient(state.piece).data() + first;
    vector_loops().adamw_inverse(by_decay.of(state), behind(state, first), gradient, count);
  });
}

}  // namespace penstock
