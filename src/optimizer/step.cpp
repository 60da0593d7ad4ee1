// SPDX-License-Identifier: Apache-2.0
#include "optimizer/step.hpp"

#include <cmath>

#include "base/error.hpp"

namespace penstock {

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

void step(const HostStage& stage, const AdamWFactors& factors, Workers& workers, std::int64_t tile) {
  AdamWFactors undecayed = factors;
  undecayed.decay = 0.0F;
  const VectorLoops& loops = vector_loops();
  const DType storage = stage.shape().storage;
  for_each_tile(stage.state(), tile, workers, [&](const StatePiece& state, std::int64_t first, std::int64_t count) {
    const auto& parameter = stage.shape().parameters[static_cast<std::size_t>(state.piece.parameter)].parameter;
    const AdamWArrays arrays{state.master + first, state.first_moment + first, state.second_moment + first,
                             stage.gradient(state.piece).data() + first};
    std::byte* copy = stage.working_copy(state.piece).data() + first * size_of(storage);
    const AdamWFactors& chosen = parameter.decays ? factors : undecayed;
    if (storage == DType::bf16) {
      loops.adamw_bf16(chosen, arrays, reinterpret_cast<std::uint16_t*>(copy), count);
    } else {
      loops.adamw_fp32(chosen, arrays, reinterpret_cast<float*>(copy), count);
    }
  });
}

}  // namespace penstock
