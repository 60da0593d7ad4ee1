// SPDX-License-Identifier: Apache-2.0
#include "config/section.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/listing.hpp"
#include "config/words.hpp"

namespace penstock::config {
namespace {

/// Where a key of that name stands in another section; empty if nowhere.
std::string elsewhere(const std::string& key) {
  const auto entries = list_keys(Deck{});
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const KeyEntry& entry) { return entry.name() == key; });
  return found == entries.end() ? std::string{} : found->path;
}

/// What the user may have meant, and what there is: "; did you mean steps? The keys of training are ...".
std::string remedy(const std::string& key, const std::vector<std::string>& known, const std::string& whose) {
  std::string meant = nearest_word(key, known);
  if (meant.empty()) meant = elsewhere(key);
  const std::string question = meant.empty() ? "; the" : fmt::format("; did you mean {}? The", meant);
  return fmt::format("{} {} are {}", question, whose, listed(known));
}

}  // namespace

std::string wrong_choice_text(const Value& value, const std::vector<std::string>& names, const KeyInfo& info) {
  const std::string choice = fmt::format("{}", fmt::join(names, ", "));
  if (!info.not_yet.empty() && value.text == info.not_yet) {
    return fmt::format("{} is not in this version, which has {}", info.not_yet, choice);
  }
  const std::string meant = nearest_word(value.text, names);
  const std::string question = meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
  const char* which = names.size() > 1 ? "one of " : "";
  return fmt::format("is {}, expected {}{}{}", description(value), which, choice, question);
}

std::string too_large_text(const std::string& text) {
  return fmt::format("is {}, beyond the largest number here, {}", shown(text),
                     std::numeric_limits<std::int32_t>::max());
}

void refuse_unknown_keys(const Value& section, const std::string& path, const std::vector<std::string>& known,
                         Faults& faults) {
  for (const auto& entry : section.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    const std::string whose = path.empty() ? "sections" : "keys of " + path;
    const std::string what = path.empty() ? "no such section" : "no such key";
    faults.add(entry.position, (path.empty() ? "" : path + ".") + shown(entry.key),
               what + remedy(entry.key, known, whose));
  }
}

}  // namespace penstock::config
