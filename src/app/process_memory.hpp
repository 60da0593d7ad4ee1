// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.hpp"

namespace penstock {

/// The most memory that this process has had resident so far.
Bytes peak_resident_set();

}  // namespace penstock
