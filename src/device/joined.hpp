// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

namespace penstock {

/// Several pieces of one queue as one: begins with `first`, and completes or fails with `last`.
/// @pre `last` was submitted after `first`
Event joined(const Event& first, const Event& last);

}  // namespace penstock
