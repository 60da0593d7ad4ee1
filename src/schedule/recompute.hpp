// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/describe.hpp"
#include "base/index.hpp"

namespace penstock {

struct Schedule;

/// What a forward keeps for its backward. What else the backward needs it forms again, for `full` the whole stage at
/// once by an action of its own (R), else layer by layer as it goes through them.
enum class Recompute : std::uint8_t {
  none,       ///< all activations
  attention,  ///< all but the normed input of the attention and its queries; keys and values stay, as later slices
              ///< read them
  selective,  ///< all but those between the two products of the feed-forward layer
  layers,     ///< each layer's input, and where sequences are cut into slices its keys and values (Megatron-LM's full
              ///< recomputation, method uniform, one layer at a time)
  full        ///< the stage's input
};

constexpr std::array<EnumName<Recompute>, 5> enum_names(Recompute) {
  return {{{Recompute::none, "none"},
           {Recompute::attention, "attention"},
           {Recompute::selective, "selective"},
           {Recompute::layers, "layers"},
           {Recompute::full, "full"}}};
}

/// One mode for each stage of the backward pass.
using RecomputeList = std::optional<std::vector<Recompute>>;

/// The mode of each stage of the backward pass: as `by_stage` lists them, or `of_all`; full where the schedule says so
/// itself, as decoupled passes do and files with an R. It need not be complete.
/// @throws Error bad_input with both numbers if the list has more or fewer entries than there are stages
PerStage<Recompute> recompute_modes(const Schedule& schedule, Recompute of_all, const RecomputeList& by_stage);

/// The stages whose forward R runs again.
PerStage<bool> fully_recomputed(const PerStage<Recompute>& modes);

}  // namespace penstock
