// SPDX-License-Identifier: Apache-2.0
#include "model/options.hpp"

namespace penstock {

ModelOptions preset_options(ModelPreset preset) {
  const ModelSpec spec = preset_spec(preset);
  ModelOptions options;
  options.preset = preset;
  options.family = spec.family;
  options.layers = spec.layers;
  options.hidden = spec.hidden;
  options.heads = spec.heads;
  options.kv_heads = spec.kv_heads;
  options.ffn = spec.ffn;
  options.experts = spec.experts;
  options.active_experts = spec.active_experts;
  options.vocabulary = spec.vocabulary;
  if (spec.family == Family::gpt2) options.positions = spec.positions;
  options.tie_embeddings = spec.tie_embeddings;
  options.precision = spec.precision;
  options.norm_epsilon = spec.norm_epsilon;
  options.rope_theta = spec.rope_theta;
  return options;
}

}  // namespace penstock
