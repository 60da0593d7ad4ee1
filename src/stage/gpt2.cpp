// SPDX-License-Identifier: Apache-2.0
#include "stage/block.hpp"

namespace penstock {
namespace {

using Role = ParameterRole;
using Tensor = BlockTensor;

// Learned positions (added by the embedding), LayerNorm, GELU, biases.
class Gpt2Math final : public FamilyMath {
 public:
  void norm(Kernels& kernels, const Norm& norm, double epsilon) const override {
    kernels.layer_norm(norm.out, norm.mean, norm.inverse, norm.in, norm.weight, norm.bias, epsilon);
  }

  void norm_gradient(Kernels& kernels, const Norm& norm, const NormGradient& gradient) const override {
    kernels.layer_norm_gradient(gradient.in, gradient.weight, gradient.bias, gradient.out, norm.in, norm.mean,
                                norm.inverse, norm.weight, gradient.residual);
  }

  void rotate(const Block& /*block*/, BlockTensor /*tensor*/, Kernels::Rotation /*rotation*/) const override {}

  void feed_forward(const Block& block) const override {
    product(block, Tensor::up, Tensor::ffn_norm, Role::up_weight, Role::up_bias);
    block.kernels.gelu(block[Tensor::hidden], block[Tensor::up]);
  }

  void feed_forward_gradient(const Block& block) const override {
    block.kernels.gelu_gradient(block[Tensor::up_gradient], block[Tensor::hidden_gradient], block[Tensor::up]);
    product_bias_gradient(block, Role::up_bias, block[Tensor::up_gradient]);
    block.kernels.linear_input_gradient(block[Tensor::norm_gradient], block[Tensor::up_gradient],
                                        block.parameters[Role::up_weight], Kernels::Write::overwrite);
  }

  std::vector<WeightProduct> feed_forward_weight_products() const override {
    return {{Role::up_weight, Tensor::up_gradient, Tensor::ffn_norm}};
  }
};

}  // namespace

const FamilyMath& gpt2_math() {
  static const Gpt2Math math;
  return math;
}

}  // namespace penstock
