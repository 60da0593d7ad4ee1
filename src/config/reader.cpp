// SPDX-License-Identifier: Apache-2.0
#include "config/reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "config/checks.hpp"
#include "config/overrides.hpp"
#include "config/section.hpp"

namespace penstock {
namespace {

using config::apply_override;
using config::Faults;
using config::largest_document;
using config::parse_document;
using config::Position;
using config::Reading;
using config::SectionReader;
using config::Value;

/// Where to show a broken rule: at the last override among its keys, which broke it, else at the first key that is
/// given.
Position place_of(const BrokenRule& rule, const Reading& reading) {
  Position place;
  bool is_given = false;
  for (const auto& key : rule.keys) {
    const auto found = reading.positions.find(key);
    if (found == reading.positions.end()) continue;
    if (!is_given || found->second.override_index > place.override_index) place = found->second;
    is_given = true;
  }
  return place;
}

void check_rules(const Deck& deck, Reading& reading) {
  for (const auto& rule : check_deck(deck)) {
    const auto is_faulty = [&](const std::string& key) { return reading.faults.concern(key); };
    if (std::any_of(rule.keys.begin(), rule.keys.end(), is_faulty)) continue;
    reading.faults.add(place_of(rule, reading), rule.keys.front(), rule.reason);
  }
}

Deck read_sections(const Value& root, Reading& reading) {
  Deck deck;
  SectionReader reader{reading, &root, root.position, ""};
  describe(reader, deck);
  reader.finish();
  check_rules(deck, reading);
  return resolved(deck);
}

bool is_deck(const Value& root, Faults& faults) {
  if (root.kind == Value::Kind::mapping) return true;
  if (!faults.empty()) return false;
  if (root.kind == Value::Kind::nothing) {
    faults.add({}, "", "the deck is empty; `penstock help deck` lists its keys, and input/ holds decks to start from");
  } else {
    faults.add(root.position, "", "is " + description(root) + ", expected sections such as model:, data:, training:");
  }
  return false;
}

std::string read_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) fail(ExitCode::bad_input, "{}", system_error_text(path + ": the deck cannot be opened", errno));
  std::string text(largest_document + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail(ExitCode::bad_input, "{}", system_error_text(path + ": the deck cannot be read", errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

Deck parse_deck(std::string_view text, const std::string& name, const std::vector<std::string>& overrides) {
  Reading reading;
  Value root = parse_document(text, -1, reading.faults);
  Deck deck;
  if (is_deck(root, reading.faults)) {
    for (std::size_t i = 0; i < overrides.size(); ++i) {
      apply_override(root, overrides[i], static_cast<int>(i), reading.faults);
    }
    deck = read_sections(root, reading);
  }
  if (!reading.faults.empty()) fail(ExitCode::bad_input, "{}", reading.faults.text(name, overrides));
  return deck;
}

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_deck(read_text(path), path, overrides);
}

}  // namespace penstock
