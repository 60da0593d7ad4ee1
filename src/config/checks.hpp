// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/broken_rule.hpp"
#include "config/deck.hpp"

namespace penstock {

/// What a deck is read for.
enum class DeckUse : std::uint8_t {
  run,
  model,  ///< of cost (simulate, show): they read no text, and need no data.train
  search  ///< plan, which gives keys other values: what a key needs may come with one of them
};

/// Every broken rule between the keys of a deck whose single values are within their ranges: batch identity, layers
/// against stages, heads, learning rate, schedule, validation, and what a key needs beside it (config/key_needs).
std::vector<BrokenRule> check_deck(const Deck& deck, DeckUse use = DeckUse::run);

/// Throws Error bad_input with a line for each thing that only the models of cost know so far (simulate, plan) and no
/// device runs: tensor, context and expert parallelism, mixtures of experts, the optimizer on the device. For train and
/// check. What makes no sense anywhere breaks a rule of check_deck.
void refuse_what_cannot_run(const Deck& deck);

/// What is allowed but may surprise: a warm-up longer than the run, a key that has no effect.
std::vector<BrokenRule> notes_on(const Deck& deck);

}  // namespace penstock
