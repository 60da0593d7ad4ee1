// SPDX-License-Identifier: Apache-2.0
#include "config/reader.hpp"

#include "config/options_file.hpp"

namespace penstock {
namespace {

constexpr config::FileKind deck_file{
    .name = "deck",
    .entry = "section",
    .when_empty = "`penstock help deck` lists its keys, and input/ holds decks to start from",
    .expectation = "sections such as model:, data:, training:"};

}  // namespace

NotedDeck parse_noted_deck(std::string_view text, const std::string& name, const std::vector<std::string>& overrides,
                           DeckUse use) {
  config::OptionsFile file{text, deck_file, overrides};
  const auto deck = file.read<Deck>();
  file.add(check_deck(deck, use));
  file.throw_faults(name, overrides);
  return {resolved(deck), file.notes(notes_on(deck), name, overrides)};
}

NotedDeck read_noted_deck(const std::string& path, const std::vector<std::string>& overrides, DeckUse use) {
  return parse_noted_deck(config::read_options_text(path, deck_file), path, overrides, use);
}

Deck parse_deck(std::string_view text, const std::string& name, const std::vector<std::string>& overrides,
                DeckUse use) {
  return parse_noted_deck(text, name, overrides, use).deck;
}

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides, DeckUse use) {
  return read_noted_deck(path, overrides, use).deck;
}

}  // namespace penstock
