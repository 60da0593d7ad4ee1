// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedule/action.hpp"

namespace penstock {

/// "F3": the op and the micro-batch, or the op and the stage for ops that work on a whole stage. For small boxes.
std::string short_label(const Action& action);

}  // namespace penstock
