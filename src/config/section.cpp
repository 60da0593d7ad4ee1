// SPDX-License-Identifier: Apache-2.0
#include "config/section.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/words.hpp"

namespace penstock::config {
namespace {

/// Where a key of that name stands in another section; empty if nowhere.
std::string elsewhere(const std::string& key, const std::vector<std::string>& paths) {
  const auto found =
      std::find_if(paths.begin(), paths.end(), [&](const std::string& path) { return path.ends_with("." + key); });
  return found == paths.end() ? std::string{} : *found;
}

/// What the user may have meant, and what there is: "; did you mean steps? The keys of training are ...".
std::string remedy(const std::string& key, const std::vector<std::string>& known, const std::string& whose,
                   const Reading& reading) {
  std::string meant = nearest_word(key, known);
  if (meant.empty()) meant = elsewhere(key, reading.known_paths);
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
                         Reading& reading) {
  const std::string whose = path.empty() ? fmt::format("{}s", reading.entry) : "keys of " + path;
  for (const auto& entry : section.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    const std::string what = path.empty() ? fmt::format("no such {}", reading.entry) : "no such key";
    reading.faults.add(entry.position, (path.empty() ? "" : path + ".") + shown(entry.key),
                       what + remedy(entry.key, known, whose, reading));
  }
}

}  // namespace penstock::config
