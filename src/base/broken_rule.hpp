// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace penstock {

/// A rule between keys of an options struct that the options break.
struct BrokenRule {
  std::vector<std::string> keys;  ///< paths of all keys that the rule speaks of; the first is the one to change
  std::string reason;             ///< with the numbers
};

/// Gathers what is broken; of the paths, the one to change first.
class BrokenRules {
 public:
  template <class... Arguments>
  void add(std::initializer_list<std::string> keys, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    rules_.push_back({{keys.begin(), keys.end()}, fmt::format(format, std::forward<Arguments>(arguments)...)});
  }
  std::vector<BrokenRule> take() { return std::move(rules_); }

 private:
  std::vector<BrokenRule> rules_;
};

}  // namespace penstock
