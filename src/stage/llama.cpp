// SPDX-License-Identifier: Apache-2.0
#include "stage/block.hpp"

namespace penstock {
namespace {

using Role = ParameterRole;
using Tensor = BlockTensor;

// Rotary positions, RMSNorm, SwiGLU.
class LlamaMath final : public FamilyMath {
 public:
  void norm(Kernels& kernels, const Norm& norm, double epsilon) const override {
    kernels.rms_norm(norm.out, norm.inverse, norm.in, norm.weight, epsilon);
  }

  void norm_gradient(Kernels& kernels, const Norm& norm, const NormGradient& gradient) const override {
    kernels.rms_norm_gradient(gradient.in, gradient.weight, gradient.out, norm.in, norm.inverse, norm.weight,
                              gradient.residual);
  }

  void rotate(const Block& block, BlockTensor tensor, Kernels::Rotation rotation) const override {
    const ModelSpec& model = block.shape.model;
    block.kernels.rotate(block[tensor], block[tensor].columns / model.head_size, block.shape.tokens,
                         block.first_position, model.rope_theta, rotation);
  }

  void feed_forward(const Block& block) const override {
    block.kernels.linear(block[Tensor::gate], block[Tensor::ffn_norm], block.parameters[Role::gate_weight], {});
    block.kernels.linear(block[Tensor::up], block[Tensor::ffn_norm], block.parameters[Role::up_weight], {});
    block.kernels.swiglu(block[Tensor::hidden], block[Tensor::gate], block[Tensor::up]);
  }

  void feed_forward_gradient(const Block& block) const override {
    block.kernels.swiglu_gradient(block[Tensor::gate_gradient], block[Tensor::up_gradient],
                                  block[Tensor::hidden_gradient], block[Tensor::gate], block[Tensor::up]);
    block.kernels.linear_input_gradient(block[Tensor::norm_gradient], block[Tensor::gate_gradient],
                                        block.parameters[Role::gate_weight], Kernels::Write::overwrite);
    block.kernels.linear_input_gradient(block[Tensor::norm_gradient], block[Tensor::up_gradient],
                                        block.parameters[Role::up_weight], Kernels::Write::accumulate);
  }

  std::vector<WeightProduct> feed_forward_weight_products() const override {
    return {{Role::gate_weight, Tensor::gate_gradient, Tensor::ffn_norm},
            {Role::up_weight, Tensor::up_gradient, Tensor::ffn_norm}};
  }
};

}  // namespace

const FamilyMath& llama_math() {
  static const LlamaMath math;
  return math;
}

}  // namespace penstock
