// SPDX-License-Identifier: Apache-2.0
#include "config/listing.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "config/hardware_file.hpp"
#include "config/scalar.hpp"

namespace penstock {
namespace {

using config::Described;
using config::List;
using config::Optional;
using config::range_text;
using config::Scalar;
using config::type_text;

template <class T>
std::optional<std::string> yaml_of(const T& value) {
  if constexpr (Optional<T>) {
    return value ? yaml_of(*value) : std::nullopt;
  } else if constexpr (List<T>) {
    std::string items;
    for (const auto& item : value) items += (items.empty() ? "" : ", ") + *yaml_of(item);
    return "[" + items + "]";
  } else {
    return Scalar<T>::text(value);
  }
}

class Lister {
 public:
  Lister(std::string parent, std::vector<KeyEntry>& entries) : parent_{std::move(parent)}, entries_{entries} {}

  template <class T>
  void operator()(std::string_view key, T& member, const KeyInfo& info) {
    const std::string path = parent_.empty() ? std::string{key} : fmt::format("{}.{}", parent_, key);
    if constexpr (Described<T>) {
      entries_.push_back({path, true, "a section", "", std::nullopt, info});
      Lister inner{path, entries_};
      describe(inner, member);
    } else {
      entries_.push_back({path, false, type_text<T>(), range_text<T>(info.range), yaml_of(member), info});
    }
  }

 private:
  std::string parent_;
  std::vector<KeyEntry>& entries_;
};

/// Whether another key of the section has taken this one's place (schedule.file that of schedule.kind).
bool is_replaced(const KeyEntry& entry, const std::vector<KeyEntry>& all) {
  if (entry.info.not_beside.empty()) return false;
  const std::string rival = fmt::format("{}.{}", entry.parent(), entry.info.not_beside);
  return std::any_of(all.begin(), all.end(), [&](const KeyEntry& other) { return other.path == rival && other.value; });
}

std::string yaml_line(const KeyEntry& entry) {
  const auto depth = static_cast<std::size_t>(std::count(entry.path.begin(), entry.path.end(), '.'));
  const std::string indent(2 * depth, ' ');
  if (entry.is_section) return fmt::format("{}{}:\n", indent, entry.name());
  return fmt::format("{}{}: {}\n", indent, entry.name(), *entry.value);
}

}  // namespace

std::string_view KeyEntry::name() const {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? std::string_view{path} : std::string_view{path}.substr(dot + 1);
}

std::string_view KeyEntry::parent() const {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? std::string_view{} : std::string_view{path}.substr(0, dot);
}

std::vector<KeyEntry> list_keys(const Deck& deck) {
  std::vector<KeyEntry> entries;
  Deck described = deck;
  Lister lister{"", entries};
  describe(lister, described);
  return entries;
}

const KeyEntry& entry_at(const std::vector<KeyEntry>& entries, std::string_view path) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const KeyEntry& entry) { return entry.path == path; });
  require(found != entries.end(), "{} is no key of a deck", path);
  return *found;
}

std::string effective_deck(const Deck& deck) {
  const auto entries = list_keys(resolved(deck));
  std::string text;
  for (const auto& entry : entries) {
    if (entry.is_section || (entry.value && !is_replaced(entry, entries))) text += yaml_line(entry);
  }
  return text;
}

std::string hardware_text(const HardwareOptions& hardware) {
  std::vector<KeyEntry> entries;
  HardwareOptions described = hardware;
  Lister lister{"", entries};
  describe(lister, described);
  std::string text;
  for (const auto& entry : entries) {
    if (entry.is_section || entry.value) text += yaml_line(entry);
  }
  return text;
}

std::uint64_t deck_hash(const Deck& deck) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : effective_deck(deck)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211U;
  }
  return hash;
}

}  // namespace penstock
