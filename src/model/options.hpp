// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/describe.hpp"
#include "model/presets.hpp"
#include "model/spec.hpp"

namespace penstock {

constexpr std::array<EnumName<Family>, 2> enum_names(Family) {
  return {{{Family::gpt2, "gpt2"}, {Family::llama, "llama"}}};
}

constexpr std::array<EnumName<Precision>, 2> enum_names(Precision) {
  return {{{Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}}};
}

/// The section `model` of a deck. Absent values follow from others (config/deck: model_spec).
struct ModelOptions {
  std::optional<ModelPreset> preset;  ///< where the values of all keys that are not given come from
  Family family = Family::llama;
  std::int32_t layers = 8;
  std::int32_t hidden = 256;
  std::int32_t heads = 8;
  std::optional<std::int32_t> kv_heads;
  std::optional<std::int32_t> head_size;
  std::optional<std::int32_t> ffn;
  std::int32_t experts = 0;         ///< 0: a dense model
  std::int32_t active_experts = 0;  ///< of each token
  std::optional<std::int32_t> vocabulary;
  std::optional<std::int32_t> positions;
  bool tie_embeddings = false;
  Precision precision = Precision::bf16;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  friend bool operator==(const ModelOptions&, const ModelOptions&) = default;
};

/// The options of a preset; what follows from others (the head size) stays absent, so that it follows from changed
/// ones.
ModelOptions preset_options(ModelPreset preset);

template <class Visitor>
void describe(Visitor& visit, ModelOptions& options) {
  const auto preset = options.preset;
  visit("preset", options.preset,
        {.help = "a published model, from which all keys below are taken; those given beside it take their place",
         .when_absent = "none"});
  // Only a reader sets a preset; its keys then stand before those that the file gives.
  if (options.preset && options.preset != preset) options = preset_options(*options.preset);
  visit("family", options.family,
        {.help = "gpt2: learned positions, LayerNorm, GELU, biases; llama: rotary positions, RMSNorm, SwiGLU, "
                 "grouped-query attention"});
  visit("layers", options.layers, {.help = "transformer layers", .range = between(1, 100000)});
  visit("hidden", options.hidden, {.help = "width of the residual stream", .range = between(1, 1 << 20)});
  visit("heads", options.heads, {.help = "attention heads", .range = between(1, 1 << 16)});
  visit("kv_heads", options.kv_heads,
        {.help = "heads of keys and values; divides heads, and equals it for gpt2",
         .range = between(1, 1 << 16),
         .when_absent = "heads"});
  visit("head_size", options.head_size,
        {.help = "width of one head; even for llama", .range = between(1, 1 << 16), .when_absent = "hidden / heads"});
  visit("ffn", options.ffn,
        {.help = "width of the feed-forward layer",
         .range = between(1, 1 << 24),
         .when_absent = "4 x hidden for gpt2; 8/3 x hidden rounded up to a multiple of 32 for llama"});
  visit("experts", options.experts,
        {.help = "feed-forward layers side by side (mixture of experts; simulate and plan alone); 0: one",
         .range = between(0, 65536)});
  visit("active_experts", options.active_experts,
        {.help = "experts that each token goes through", .range = between(0, 65536)});
  visit("vocabulary", options.vocabulary,
        {.help = "number of different tokens",
         .unit = "tokens",
         .range = between(1, 1 << 24),
         .when_absent = "the tokenizer's"});
  visit("positions", options.positions,
        {.help = "longest sequence that gpt2's position table knows",
         .unit = "tokens",
         .range = between(1, 1 << 24),
         .when_absent = "training.sequence"});
  visit("tie_embeddings", options.tie_embeddings, {.help = "the output head is the token embedding, transposed"});
  visit("precision", options.precision,
        {.help = "storage of parameters and activations on the device; masters and accumulation are fp32 in both"});
  visit("norm_epsilon", options.norm_epsilon,
        {.help = "added to the mean square under the root of a norm", .range = more_than(0)});
  visit("rope_theta", options.rope_theta, {.help = "base of the rotary angles, llama", .range = more_than(0)});
}

}  // namespace penstock
