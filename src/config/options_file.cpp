// SPDX-License-Identifier: Apache-2.0
#include "config/options_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>

#include <fmt/format.h>

#include "base/error.hpp"
#include "config/overrides.hpp"

namespace penstock::config {
namespace {

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

}  // namespace

std::string read_options_text(const std::string& path, const FileKind& kind) {
  const auto fault = [&](const char* what) {
    fail(ExitCode::bad_input, "{}",
         system_error_text(fmt::format("{}: the {} cannot be {}", path, kind.name, what), errno));
  };
  std::ifstream file{path, std::ios::binary};
  if (!file) fault("opened");
  std::string text(largest_document + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fault("read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

OptionsFile::OptionsFile(std::string_view text, const FileKind& kind, const std::vector<std::string>& overrides,
                         std::string_view prefix)
    : root_{parse_document(text, -1, reading_.faults)} {
  reading_.entry = kind.entry;
  is_mapping_ = is_mapping(kind);
  if (!is_mapping_) return;
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root_, overrides[i].substr(prefix.size()), static_cast<int>(i), reading_.faults);
  }
}

bool OptionsFile::is_mapping(const FileKind& kind) {
  if (root_.kind == Value::Kind::mapping) return true;
  if (!reading_.faults.empty()) return false;
  if (root_.kind == Value::Kind::nothing) {
    reading_.faults.add({}, "", fmt::format("the {} is empty; {}", kind.name, kind.when_empty));
  } else {
    reading_.faults.add(root_.position, "", fmt::format("is {}, expected {}", description(root_), kind.expectation));
  }
  return false;
}

bool OptionsFile::is_from_text(std::string_view key) const {
  const auto found = reading_.positions.find(key);
  return found != reading_.positions.end() && found->second.override_index < 0;
}

bool OptionsFile::is_from_override(std::string_view key) const {
  const auto found = reading_.positions.find(key);
  return found != reading_.positions.end() && found->second.override_index >= 0;
}

void OptionsFile::add(const std::vector<BrokenRule>& rules) {
  if (!is_mapping_) return;
  for (const auto& rule : rules) {
    const auto is_faulty = [&](const std::string& key) { return reading_.faults.concern(key); };
    if (std::any_of(rule.keys.begin(), rule.keys.end(), is_faulty)) continue;
    reading_.faults.add(place_of(rule, reading_), rule.keys.front(), rule.reason);
  }
}

std::vector<std::string> OptionsFile::notes(const std::vector<BrokenRule>& rules, const std::string& file,
                                            const std::vector<std::string>& overrides) const {
  Faults placed;
  for (const auto& rule : rules) placed.add(place_of(rule, reading_), rule.keys.front(), rule.reason);
  return placed.lines(file, overrides);
}

void OptionsFile::throw_faults(const std::string& file, const std::vector<std::string>& overrides) const {
  if (!reading_.faults.empty()) fail(ExitCode::bad_input, "{}", reading_.faults.text(file, overrides));
}

}  // namespace penstock::config
