// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/faults.hpp"

namespace penstock::config {

/// A YAML value with its place: what is left of a text when the syntax is taken away.
struct Value {
  enum class Kind : std::uint8_t { nothing, scalar, list, mapping };
  struct Entry;

  Kind kind = Kind::nothing;
  Position position;
  std::string text;            ///< of a scalar
  bool quoted = false;         ///< a scalar that is text whatever it looks like
  std::vector<Value> items;    ///< of a list
  std::vector<Entry> entries;  ///< of a mapping, no key twice

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Value::Entry {
  std::string key;
  Position position;  ///< of the key
  Value value;
};

/// Decks are short; longer files, deeper nesting and longer mappings are mistakes or attacks.
inline constexpr std::size_t largest_document = std::size_t{1} << 20;
inline constexpr std::size_t deepest_nesting = 20;
inline constexpr std::size_t most_entries = 1000;

/// Reads one YAML document. Every fault of the syntax goes to `faults`: what is no YAML, no UTF-8, too large or too
/// deep, a key that stands twice, an alias, a tag, a second document. `override_index` goes into the positions. An
/// empty text gives Kind::nothing.
Value parse_document(std::string_view text, int override_index, Faults& faults);

/// "the text 'x'", "a list", "a section", "nothing": for messages.
std::string description(const Value& value);

}  // namespace penstock::config
