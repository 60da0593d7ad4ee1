// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "kernels/kernels.hpp"

namespace penstock::reference {

/// The executable specification of Kernels: loops that read like the formulas, everything in double between loads and
/// stores, one thread. Any storage type; slow, for tests and as the measure of the fast kernels.
class ReferenceKernels final : public Kernels {
 public:
  std::string description() const override;
  Bytes scratch_bytes(const KernelLimits& limits) const override;
  void bind_scratch(std::span<std::byte> scratch) override;

  void embedding(Matrix out, ConstMatrix tokens, ConstMatrix token_table, ConstMatrix position_table,
                 std::int64_t tokens_per_sequence, std::int64_t first_position) override;
  void embedding_gradient(Matrix token_gradient, Matrix position_gradient, ConstMatrix gradient, ConstMatrix tokens,
                          std::int64_t tokens_per_sequence, std::int64_t first_position) override;

  void rms_norm(Matrix out, Matrix inverse_rms, ConstMatrix in, ConstMatrix weight, double epsilon) override;
  void rms_norm_gradient(Matrix in_gradient, Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in,
                         ConstMatrix inverse_rms, ConstMatrix weight, ConstMatrix residual) override;
  void layer_norm(Matrix out, Matrix mean, Matrix inverse_deviation, ConstMatrix in, ConstMatrix weight,
                  ConstMatrix bias, double epsilon) override;
  void layer_norm_gradient(Matrix in_gradient, Matrix weight_gradient, Matrix bias_gradient, ConstMatrix out_gradient,
                           ConstMatrix in, ConstMatrix mean, ConstMatrix inverse_deviation, ConstMatrix weight,
                           ConstMatrix residual) override;

  void linear(Matrix out, ConstMatrix in, ConstMatrix weight, ConstMatrix bias) override;
  void linear_input_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix weight, Write write) override;
  void linear_weight_gradient(Matrix weight_gradient, ConstMatrix out_gradient, ConstMatrix in) override;
  void bias_gradient(Matrix bias_gradient, ConstMatrix out_gradient) override;

  void rotate(Matrix x, std::int64_t heads, std::int64_t tokens_per_sequence, std::int64_t first_position, double theta,
              Rotation rotation) override;
  void attention(const AttentionShape& shape, Matrix out, Matrix log_sum_exp, ConstMatrix q,
                 std::span<const KeyValueChunk> chunks) override;
  void attention_gradient(const AttentionShape& shape, Matrix dq, Matrix dk, Matrix dv, ConstMatrix out_gradient,
                          ConstMatrix out, ConstMatrix log_sum_exp, ConstMatrix q,
                          std::span<const KeyValueChunk> chunks) override;
  void merge_attention(Matrix out, Matrix log_sum_exp, std::span<const AttentionPart> parts) override;
  void attention_shift(Matrix shift, ConstMatrix out_gradient, ConstMatrix out) override;
  void attention_part_gradient(const AttentionShape& shape, Matrix dq, ConstMatrix out_gradient,
                               ConstMatrix log_sum_exp, ConstMatrix shift, ConstMatrix q,
                               std::span<const KeyValueChunk> chunks) override;
  void add_parts(Matrix out, std::span<const ConstMatrix> parts) override;

  void add(Matrix out, ConstMatrix a, ConstMatrix b) override;
  void swiglu(Matrix out, ConstMatrix gate, ConstMatrix up) override;
  void swiglu_gradient(Matrix gate_gradient, Matrix up_gradient, ConstMatrix out_gradient, ConstMatrix gate,
                       ConstMatrix up) override;
  void gelu(Matrix out, ConstMatrix in) override;
  void gelu_gradient(Matrix in_gradient, ConstMatrix out_gradient, ConstMatrix in) override;
  void zero(Matrix out) override;
  void copy(Matrix out, ConstMatrix in) override;

  void cross_entropy(Matrix losses, Matrix log_sum_exp, ConstMatrix logits, ConstMatrix targets) override;
  void cross_entropy_gradient(Matrix logits_gradient, ConstMatrix logits, ConstMatrix log_sum_exp, ConstMatrix targets,
                              double scale) override;
};

}  // namespace penstock::reference
