// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.hpp"

namespace penstock {

/// Host memory that processes can still take without swapping, by the kernel's estimate (MemAvailable) and the limits
/// of the control groups that this process is in.
Bytes available_memory();

/// What they could ever have: the machine's memory, and the same limits.
Bytes total_memory();

}  // namespace penstock
