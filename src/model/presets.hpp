// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/describe.hpp"
#include "model/spec.hpp"

namespace penstock {

/// Published models by name.
enum class ModelPreset : std::uint8_t {
  gpt2_124m,
  llama2_7b,
  llama2_13b,
  llama2_34b,  ///< the shape of Code Llama 34B
  llama2_70b,
  mixtral_8x7b,
  mixtral_8x22b,
  slimpipe_7b,  ///< those of SlimPipe have the vocabulary of its experiments, 128000
  slimpipe_13b,
  slimpipe_70b,
  slimpipe_149b,
  slimpipe_8x7b,
  slimpipe_8x22b,
  spipe_10b,  ///< those of SPipe have GPT-2's vocabulary and, as in its scripts, few heads
  spipe_19b,
  spipe_30b,
  spipe_40b,
  spipe_52b,
  spipe_69b,
  spipe_88b,
  spipe_110b
};

constexpr auto enum_names(ModelPreset) {
  return std::to_array<EnumName<ModelPreset>>(
      {{ModelPreset::gpt2_124m, "gpt2_124m"},           {ModelPreset::llama2_7b, "llama2_7b"},
       {ModelPreset::llama2_13b, "llama2_13b"},         {ModelPreset::llama2_34b, "llama2_34b"},
       {ModelPreset::llama2_70b, "llama2_70b"},         {ModelPreset::mixtral_8x7b, "mixtral_8x7b"},
       {ModelPreset::mixtral_8x22b, "mixtral_8x22b"},   {ModelPreset::slimpipe_7b, "slimpipe_7b"},
       {ModelPreset::slimpipe_13b, "slimpipe_13b"},     {ModelPreset::slimpipe_70b, "slimpipe_70b"},
       {ModelPreset::slimpipe_149b, "slimpipe_149b"},   {ModelPreset::slimpipe_8x7b, "slimpipe_8x7b"},
       {ModelPreset::slimpipe_8x22b, "slimpipe_8x22b"}, {ModelPreset::spipe_10b, "spipe_10b"},
       {ModelPreset::spipe_19b, "spipe_19b"},           {ModelPreset::spipe_30b, "spipe_30b"},
       {ModelPreset::spipe_40b, "spipe_40b"},           {ModelPreset::spipe_52b, "spipe_52b"},
       {ModelPreset::spipe_69b, "spipe_69b"},           {ModelPreset::spipe_88b, "spipe_88b"},
       {ModelPreset::spipe_110b, "spipe_110b"}});
}

ModelSpec preset_spec(ModelPreset preset);

}  // namespace penstock
