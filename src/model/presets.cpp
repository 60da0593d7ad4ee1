// SPDX-License-Identifier: Apache-2.0
#include "model/presets.hpp"

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr std::int32_t llama2_vocabulary = 32000;
constexpr std::int32_t llama3_vocabulary = 128000;  // rounded as in SlimPipe's scripts
constexpr std::int32_t gpt2_vocabulary = 50257;

/// The sizes in which models of the family llama differ.
struct Sizes {
  std::int32_t layers;
  std::int32_t hidden;
  std::int32_t ffn;
  std::int32_t heads;
  std::int32_t kv_heads;
};

ModelSpec llama(const Sizes& sizes, std::int32_t vocabulary) {
  return {.family = Family::llama,
          .layers = sizes.layers,
          .hidden = sizes.hidden,
          .heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .head_size = sizes.hidden / sizes.heads,
          .ffn = sizes.ffn,
          .vocabulary = vocabulary};
}

ModelSpec mixtral(const Sizes& sizes, std::int32_t vocabulary) {
  ModelSpec spec = llama(sizes, vocabulary);
  spec.experts = 8;
  spec.active_experts = 2;
  spec.rope_theta = 1e6;
  return spec;
}

ModelSpec spipe(std::int32_t layers, std::int32_t hidden, std::int32_t ffn, std::int32_t heads) {
  return llama({layers, hidden, ffn, heads, heads}, gpt2_vocabulary);
}

ModelSpec gpt2_124m() {
  return {.family = Family::gpt2,
          .layers = 12,
          .hidden = 768,
          .heads = 12,
          .kv_heads = 12,
          .head_size = 64,
          .ffn = 3072,
          .vocabulary = gpt2_vocabulary,
          .positions = 1024,
          .tie_embeddings = true};
}

constexpr Sizes llama_7b{32, 4096, 11008, 32, 32};
constexpr Sizes llama_13b{40, 5120, 13824, 40, 40};
constexpr Sizes llama_34b{48, 8192, 22016, 64, 8};
constexpr Sizes llama_70b{80, 8192, 28672, 64, 8};
constexpr Sizes llama_149b{96, 12288, 32768, 96, 8};
constexpr Sizes mixtral_7b{32, 4096, 14336, 32, 8};
constexpr Sizes mixtral_22b{56, 6144, 16384, 48, 8};

}  // namespace

ModelSpec preset_spec(ModelPreset preset) {
  switch (preset) {
    case ModelPreset::gpt2_124m:
      return gpt2_124m();
    case ModelPreset::llama2_7b:
      return llama(llama_7b, llama2_vocabulary);
    case ModelPreset::llama2_13b:
      return llama(llama_13b, llama2_vocabulary);
    case ModelPreset::llama2_34b:
      return llama(llama_34b, llama2_vocabulary);
    case ModelPreset::llama2_70b:
      return llama(llama_70b, llama2_vocabulary);
    case ModelPreset::mixtral_8x7b:
      return mixtral(mixtral_7b, llama2_vocabulary);
    case ModelPreset::mixtral_8x22b:
      return mixtral(mixtral_22b, 32768);
    case ModelPreset::slimpipe_7b:
      return llama(llama_7b, llama3_vocabulary);
    case ModelPreset::slimpipe_13b:
      return llama(llama_13b, llama3_vocabulary);
    case ModelPreset::slimpipe_70b:
      return llama(llama_70b, llama3_vocabulary);
    case ModelPreset::slimpipe_149b:
      return llama(llama_149b, llama3_vocabulary);
    case ModelPreset::slimpipe_8x7b:
      return mixtral(mixtral_7b, llama3_vocabulary);
    case ModelPreset::slimpipe_8x22b:
      return mixtral(mixtral_22b, llama3_vocabulary);
    case ModelPreset::spipe_10b:
      return spipe(48, 4096, 11008, 2);
    case ModelPreset::spipe_19b:
      return spipe(48, 5632, 13312, 4);
    case ModelPreset::spipe_30b:
      return spipe(96, 5120, 12800, 4);
    case ModelPreset::spipe_40b:
      return spipe(96, 5888, 15360, 4);
    case ModelPreset::spipe_52b:
      return spipe(96, 6656, 17920, 8);
    case ModelPreset::spipe_69b:
      return spipe(96, 7680, 20480, 8);
    case ModelPreset::spipe_88b:
      return spipe(192, 6144, 16384, 16);
    case ModelPreset::spipe_110b:
      return spipe(192, 6912, 18432, 16);
  }
  fail(ExitCode::internal, "model: no such preset");
}

}  // namespace penstock
