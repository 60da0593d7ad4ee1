// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedule/action.hpp"

namespace penstock {

/// "F3": the op and the micro-batch, or the op and the stage for ops that work on a whole stage. For small boxes.
std::string short_label(const Action& action);

/// The notation of schedules: "2F3", and "2F3.1" when the sequence has several slices.
std::string full_label(const Action& action, bool with_slice);

}  // namespace penstock
