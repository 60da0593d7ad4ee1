// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/describe.hpp"

namespace penstock {

/// What a forward keeps for its backward.
enum class Recompute : std::uint8_t {
  none,       ///< all activations
  selective,  ///< all but those between the two products of the feed-forward layer; the backward makes them again
  layers,     ///< each layer's input; the backward runs the forward of each layer again before its own (Megatron-LM's
              ///< full recomputation, method uniform, one layer at a time)
  full        ///< the stage's input; the backward runs the forward of the whole stage again first
};

constexpr std::array<EnumName<Recompute>, 4> enum_names(Recompute) {
  return {{{Recompute::none, "none"},
           {Recompute::selective, "selective"},
           {Recompute::layers, "layers"},
           {Recompute::full, "full"}}};
}

}  // namespace penstock
