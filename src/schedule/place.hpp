// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/describe.hpp"

namespace penstock {

/// Where something is kept from step to step.
enum class Place : std::uint8_t { device, host };

constexpr std::array<EnumName<Place>, 2> enum_names(Place) {
  return {{{Place::device, "device"}, {Place::host, "host"}}};
}

/// Which ranks stand side by side, and so share nodes: those of a pipeline, or the replicas of one of them, as where
/// Megatron-LM numbers its ranks (order tp-cp-ep-dp-pp).
enum class Neighbours : std::uint8_t { pipeline, replicas };

constexpr std::array<EnumName<Neighbours>, 2> enum_names(Neighbours) {
  return {{{Neighbours::pipeline, "pipeline"}, {Neighbours::replicas, "replicas"}}};
}

}  // namespace penstock
