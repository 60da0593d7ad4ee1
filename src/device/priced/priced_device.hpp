// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/units.hpp"
#include "device/device.hpp"

namespace penstock {

/// A device that computes nothing: its queues are those of the host device, and its memory is addresses alone, which no
/// page of the machine stands behind. A plan of many times the machine's memory can be walked on it, and an access
/// stops the program where it happens.
///
/// What work and copies cost is for who queues them to wait (PricedWork); the copies of Device itself are refused, as
/// there is nothing to copy.
std::unique_ptr<Device> make_priced_device(Bytes capacity_limit, DelayOptions delays);

}  // namespace penstock
