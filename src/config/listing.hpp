// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/describe.hpp"
#include "config/deck.hpp"

namespace penstock {

/// One key of the deck as data: what the options structs say, without their types.
struct KeyEntry {
  std::string path;                  ///< "training.learning_rate.peak"
  bool is_section = false;           ///< has keys of its own
  std::string type;                  ///< "a whole number", "gpipe | 1f1b | interleaved"
  std::string range;                 ///< "at least 1", "more than 0 s"; may be empty
  std::optional<std::string> value;  ///< as YAML, on one line; none when absent, and of sections
  KeyInfo info;

  std::string_view name() const;
  std::string_view parent() const;  ///< path of the section; empty for the sections of the deck
};

/// All keys with the values that `deck` gives them, sections before their keys, in the order of the options structs.
std::vector<KeyEntry> list_keys(const Deck& deck);

/// The entry of `path`, which must be among them.
const KeyEntry& entry_at(const std::vector<KeyEntry>& entries, std::string_view path);

/// A YAML text with every key, which reads back to `resolved(deck)`; it stands in the run's folder and in checkpoints.
std::string effective_deck(const Deck& deck);

/// A number that is equal on two ranks only if they read the same deck (the FNV-1a hash of effective_deck).
std::uint64_t deck_hash(const Deck& deck);

/// All keys with type, default and help, for a terminal: what `penstock help deck` prints.
std::string key_help();

/// doc/decks.md, in Markdown: the keys section by section.
std::string manual();

}  // namespace penstock
