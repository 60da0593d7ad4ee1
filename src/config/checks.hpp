// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace penstock {

/// A rule between keys that a deck breaks.
struct BrokenRule {
  std::vector<std::string> keys;  ///< paths of all keys that the rule speaks of; the first is the one to change
  std::string reason;             ///< with the numbers
};

/// Every broken rule between the keys of a deck whose single values are within their ranges: batch identity, layers
/// against stages, heads, learning rate, schedule, validation.
std::vector<BrokenRule> check_deck(const Deck& deck);

/// What is allowed but may surprise, in sentences for the log: a warm-up longer than the run, a minimum that is not
/// used.
std::vector<std::string> notes_on(const Deck& deck);

}  // namespace penstock
