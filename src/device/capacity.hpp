// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.hpp"

namespace penstock {

/// Refuses a run that needs more memory than its device has. @throws Error does_not_fit with both sizes
void require_capacity(Bytes needed, Bytes capacity);

}  // namespace penstock
