// SPDX-License-Identifier: Apache-2.0
#include "config/reader.hpp"

#include <iterator>

#include "config/kind_keys.hpp"
#include "config/options_file.hpp"

namespace penstock {
namespace {

constexpr config::FileKind deck_file{
    .name = "deck",
    .entry = "section",
    .when_empty = "`penstock help deck` lists its keys, and input/ holds decks to start from",
    .expectation = "sections such as model:, data:, training:"};

/// What the deck says for its own kind of schedule, where the command line chose another.
std::vector<BrokenRule> set_aside(Deck& deck, const config::OptionsFile& file) {
  if (deck.schedule.file || !file.is_from_override("schedule.kind")) return {};
  return set_aside_keys_of_other_kinds(deck, [&](std::string_view key) { return file.is_from_text(key); });
}

}  // namespace

NotedDeck parse_noted_deck(std::string_view text, const std::string& name, const std::vector<std::string>& overrides,
                           DeckUse use) {
  config::OptionsFile file{text, deck_file, overrides};
  auto deck = file.read<Deck>();
  auto notes = set_aside(deck, file);
  file.add(check_deck(deck, use));
  file.throw_faults(name, overrides);
  auto others = notes_on(deck);
  notes.insert(notes.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  return {resolved(deck), file.notes(notes, name, overrides)};
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
