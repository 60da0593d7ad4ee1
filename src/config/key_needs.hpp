// SPDX-License-Identifier: Apache-2.0
//
// Keys that mean something only beside others: one table, a row a need, from which faults and notes follow.
#pragma once

#include <cstdint>
#include <vector>

#include "base/broken_rule.hpp"
#include "config/deck.hpp"

namespace penstock {

/// What becomes of a key whose need is not met.
enum class Unmet : std::uint8_t {
  refused,  ///< the run would not do what the key's value asks for
  noted     ///< the key is about something that the run does not do at all, or that another key decides
};

/// Whether every forward of the deck's run keeps its stage's input alone.
bool recomputes_in_full(const Deck& deck);

/// The keys whose value is not the one that they have when left out, though what they need is not there: such a value
/// changes nothing. A default that is written out is taken, since it says no more than what is so.
std::vector<BrokenRule> unmet_needs(const Deck& deck, Unmet unmet);

}  // namespace penstock
