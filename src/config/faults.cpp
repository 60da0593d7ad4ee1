// SPDX-License-Identifier: Apache-2.0
#include "config/faults.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "config/words.hpp"

namespace penstock::config {
namespace {

/// More lines than this help no one.
constexpr std::size_t most_lines = 100;

std::string place_text(const Position& position, const std::string& file, const std::vector<std::string>& overrides) {
  if (position.override_index < 0) return fmt::format("{}:{}:{}", file, position.line, position.column);
  return fmt::format("--set {}", shown(overrides[static_cast<std::size_t>(position.override_index)]));
}

bool stands_before(const Fault& a, const Fault& b) {
  return std::tie(a.position.override_index, a.position.line, a.position.column) <
         std::tie(b.position.override_index, b.position.line, b.position.column);
}

}  // namespace

void Faults::add(const Position& position, const std::string& key, std::string reason) {
  faults_.push_back({position, key, std::move(reason)});
  keys_.insert(key);
}

void Faults::add_all(const Faults& others) {
  for (const auto& fault : others.faults_) add(fault.position, fault.key, fault.reason);
}

bool Faults::concern(std::string_view key) const {
  if (keys_.contains(key)) return true;
  const auto dot = key.rfind('.');
  return dot != std::string_view::npos && concern(key.substr(0, dot));
}

std::vector<std::string> Faults::lines(const std::string& file, const std::vector<std::string>& overrides) const {
  auto sorted = faults_;
  std::stable_sort(sorted.begin(), sorted.end(), stands_before);
  std::vector<std::string> lines;
  lines.reserve(sorted.size());
  for (const Fault& fault : sorted) {
    const std::string place = place_text(fault.position, file, overrides);
    lines.push_back(fault.key.empty() ? fmt::format("{}: {}", place, fault.reason)
                                      : fmt::format("{}: {}: {}", place, fault.key, fault.reason));
  }
  return lines;
}

std::string Faults::text(const std::string& file, const std::vector<std::string>& overrides) const {
  auto shown_lines = lines(file, overrides);
  if (shown_lines.size() > most_lines) {
    const auto rest = static_cast<std::int64_t>(shown_lines.size() - most_lines);
    shown_lines.resize(most_lines);
    shown_lines.push_back("... and " + counted(rest, "more fault", "more faults"));
  }
  return fmt::format("{}", fmt::join(shown_lines, "\n"));
}

}  // namespace penstock::config
