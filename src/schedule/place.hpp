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

}  // namespace penstock
