// SPDX-License-Identifier: Apache-2.0
//
// Keys of the section schedule that only some kinds have a use for, where the command line chooses another kind.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/broken_rule.hpp"
#include "config/deck.hpp"

namespace penstock {

/// Gives the keys that `schedule.kind` has no use for, and for which `stands_in_file` is true, their defaults: a deck
/// written for one kind can then be run with another by `--set schedule.kind` alone. A note for each value that it set
/// aside. A key that --set gave is left as it is, and so is what a kind can use but refuses, as a number of slices that
/// it cannot deal out: `check_deck` speaks of those.
std::vector<BrokenRule> set_aside_keys_of_other_kinds(Deck& deck,
                                                      const std::function<bool(std::string_view key)>& stands_in_file);

}  // namespace penstock
