// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "base/units.hpp"
#include "device/device.hpp"

namespace penstock {

/// The device that a deck names in `device.kind`, with at most `capacity` bytes of memory.
/// @throws Error bad_input for a kind that is unknown or not in this build, listing those that are.
std::unique_ptr<Device> make_device(std::string_view kind, Bytes capacity, DelayOptions delays);

}  // namespace penstock
