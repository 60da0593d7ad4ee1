// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/broken_rule.hpp"
#include "config/deck.hpp"

namespace penstock {

/// What a deck is read for. The models of cost (simulate, plan, show) read no text, and need no data.train.
enum class DeckUse : std::uint8_t { run, model };

/// Every broken rule between the keys of a deck whose single values are within their ranges: batch identity, layers
/// against stages, heads, learning rate, schedule, validation.
std::vector<BrokenRule> check_deck(const Deck& deck, DeckUse use = DeckUse::run);

/// Throws Error bad_input with a line for each thing that only the models of cost know so far (simulate, plan) and no
/// device runs: tensor, context and expert parallelism, mixtures of experts, the optimizer on the device, vocabulary
/// parallelism. For train and check.
void refuse_what_cannot_run(const Deck& deck);

/// What is allowed but may surprise, in sentences for the log: a warm-up longer than the run, a minimum that is not
/// used.
std::vector<std::string> notes_on(const Deck& deck);

}  // namespace penstock
