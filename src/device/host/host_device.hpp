// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/units.hpp"
#include "device/device.hpp"

namespace penstock {

/// What the device memory holds at first. `not_a_number` fills it with bytes 0xFF, which read as NaN in every
/// floating-point type, so that a value used before it was written shows in the results.
enum class InitialContents : std::uint8_t { zero, not_a_number };

/// not_a_number in builds with assertions or sanitizers, else zero (untouched pages, which cost nothing until they are
/// used).
InitialContents default_initial_contents();

/// The asynchronous device in host memory: queues are threads, copies run in them, and no more than `capacity_limit`
/// bytes can be reserved. `delays` precede every piece of work of every queue; the n-th queue made draws the n-th
/// stream of `delays.seed`, so ranks that should differ need seeds that differ.
///
/// The device must outlive its queues' use of its memory: destroy the queues first.
std::unique_ptr<Device> make_host_device(Bytes capacity_limit, DelayOptions delays,
                                         InitialContents contents = default_initial_contents());

}  // namespace penstock
