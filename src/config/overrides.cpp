// SPDX-License-Identifier: Apache-2.0
#include "config/overrides.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::config {
namespace {

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The value under `key`, made if missing; what is no mapping becomes an empty one first.
Value& child(Value& parent, const std::string& key, const Position& position) {
  if (parent.kind != Value::Kind::mapping) {
    parent = Value{};
    parent.kind = Value::Kind::mapping;
    parent.position = position;
  }
  if (auto* entry = parent.find(key); entry != nullptr) {
    entry->position = position;
    return entry->value;
  }
  parent.entries.push_back({key, position, {}});
  return parent.entries.back().value;
}

bool is_path(const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    if (part.empty()) return false;
  }
  return parts.size() <= deepest_nesting;
}

}  // namespace

void apply_override(Value& root, const std::string& text, int index, Faults& faults) {
  const Position position{index};
  const auto equals = text.find('=');
  const auto parts = parts_of(std::string_view{text}.substr(0, equals));
  if (equals == std::string::npos || !is_path(parts)) {
    faults.add(position, "", "expected KEY=VALUE, such as training.steps=20");
    return;
  }
  Faults of_value;
  Value value = parse_document(std::string_view{text}.substr(equals + 1), index, of_value);
  faults.add_all(of_value);
  if (!of_value.empty()) return;
  value.position = position;
  Value* place = &root;
  for (const auto& part : parts) place = &child(*place, part, position);
  *place = std::move(value);
}

}  // namespace penstock::config
