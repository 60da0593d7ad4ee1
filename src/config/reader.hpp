// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/checks.hpp"
#include "config/deck.hpp"

namespace penstock {

/// A deck, and what is allowed in it but may surprise, for the log: `file:line:column: key: sentence`.
struct NotedDeck {
  Deck deck;
  std::vector<std::string> notes;
};

/// Reads a deck's file; `overrides` are the `key=value` of the command line's --set, applied in order over the file
/// before anything is checked. The deck returned is `resolved` and breaks no rule of `check_deck`.
/// @throws Error bad_input with a line for every fault: `file:line:column: key: reason`.
NotedDeck read_noted_deck(const std::string& path, const std::vector<std::string>& overrides = {},
                          DeckUse use = DeckUse::run);

/// The deck alone.
Deck read_deck(const std::string& path, const std::vector<std::string>& overrides = {}, DeckUse use = DeckUse::run);

/// The same from a text; `name` stands for the file in messages.
NotedDeck parse_noted_deck(std::string_view text, const std::string& name,
                           const std::vector<std::string>& overrides = {}, DeckUse use = DeckUse::run);
Deck parse_deck(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {},
                DeckUse use = DeckUse::run);

}  // namespace penstock
