// SPDX-License-Identifier: Apache-2.0
//
// What a module says of its options: plain structs with defaults, and for each struct one template
//
//   template <class Visitor>
//   void describe(Visitor& visit, MemoryOptions& options) {
//     visit("device", options.device, {.help = "device memory the run may use", .range = at_least(1)});
//   }
//
// From that one list come the deck's reader, the dump, the help, the manual and the text that ranks compare (config).
#pragma once

#include <limits>
#include <string_view>

namespace penstock {

/// The numbers that a key takes; of a list, each of its entries. Sizes count in bytes, durations in seconds.
struct KeyRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_is_allowed = true;
  bool high_is_allowed = true;

  constexpr bool contains(double value) const {
    const bool above = low_is_allowed ? value >= low : value > low;
    const bool below = high_is_allowed ? value <= high : value < high;
    return above && below;
  }
};

constexpr KeyRange at_least(double low) {
  return {.low = low};
}
constexpr KeyRange more_than(double low) {
  return {.low = low, .low_is_allowed = false};
}
constexpr KeyRange between(double low, double high) {
  return {.low = low, .high = high};
}
constexpr KeyRange from_up_to_below(double low, double high) {
  return {.low = low, .high = high, .high_is_allowed = false};
}

/// Whether a deck must give the key.
enum class Presence { optional, required };

/// What a key means and takes, beside its type and its default, which the member itself has.
struct KeyInfo {
  std::string_view help;                   ///< one line; without the type's own unit (bytes, seconds)
  std::string_view unit = {};              ///< of a bare number: "tokens", "steps"
  KeyRange range = {};                     ///< of numbers
  Presence presence = Presence::optional;  ///< a required key has no default
  std::string_view when_absent = {};       ///< of a std::optional member: what is then taken, "hidden / heads"
  std::string_view not_beside = {};        ///< an earlier key of the section that takes this one's place
  std::string_view not_yet = {};           ///< of an enum: a name that later versions know
};

/// The name of an enumerator in decks. A table of them is found by `constexpr std::array<EnumName<E>, n> enum_names(E)`
/// in the namespace of E.
template <class E>
struct EnumName {
  E value;
  std::string_view name;
};

/// The name of an enumerator, as decks write it.
template <class E>
constexpr std::string_view deck_name(E value) {
  for (const auto& entry : enum_names(value)) {
    if (entry.value == value) return entry.name;
  }
  return {};
}

}  // namespace penstock
