// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "config/document.hpp"
#include "config/faults.hpp"

namespace penstock::config {

/// Puts `key.path=value` in place of what `root`, a mapping, has there; sections on the way are made when missing.
/// The reader finds out whether the key exists. `index` goes into positions.
void apply_override(Value& root, const std::string& text, int index, Faults& faults);

}  // namespace penstock::config
