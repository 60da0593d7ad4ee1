// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

enum class Family : std::uint8_t {
  gpt2,  ///< learned positions, LayerNorm, GELU (tanh form), biases
  llama  ///< rotary positions (half-split pairs), RMSNorm, SwiGLU, grouped-query attention, no biases
};

/// Storage of parameters and activations on the device; masters, accumulation, statistics and logits are fp32 in both.
enum class Precision : std::uint8_t { fp32, bf16 };

/// What a model is; the names and shapes of its parameters follow from it (model/parameters).
struct ModelSpec {
  Family family = Family::llama;
  std::int32_t layers = 8;
  std::int32_t hidden = 256;
  std::int32_t heads = 8;
  std::int32_t kv_heads = 8;    ///< divides heads; equals heads for gpt2
  std::int32_t head_size = 32;  ///< hidden / heads unless set otherwise
  std::int32_t ffn = 704;
  std::int32_t experts = 0;         ///< feed-forward layers side by side in each layer; 0: one, dense
  std::int32_t active_experts = 0;  ///< of them that each token goes through
  std::int32_t vocabulary = 256;    ///< tokens
  std::int32_t positions = 256;     ///< learned positions (gpt2): the training sequence
  bool tie_embeddings = false;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;  ///< llama
  Precision precision = Precision::bf16;

  std::int32_t query_width() const { return heads * head_size; }
  std::int32_t kv_width() const { return kv_heads * head_size; }
  bool is_mixture() const { return experts > 0; }
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// Throws Error bad_input naming the first rule that the spec breaks (positive sizes, heads divided by kv_heads, an
/// even head size for rotary positions, ...), with the numbers.
void check(const ModelSpec& spec);

}  // namespace penstock
