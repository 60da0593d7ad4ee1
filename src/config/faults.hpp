// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config {

/// A place in the deck's file, or in one of the overrides of the command line.
struct Position {
  int override_index = -1;  ///< -1: in the file
  int line = 1;             ///< from 1
  int column = 1;           ///< from 1
};

/// One thing that is wrong with a deck.
struct Fault {
  Position position;
  std::string key;     ///< path of the key, "training.steps"; may be empty
  std::string reason;  ///< what is wrong, what was expected, what to do
};

/// All faults of a deck, gathered so that the user sees them at once.
class Faults {
 public:
  void add(const Position& position, const std::string& key, std::string reason);
  void add_all(const Faults& others);
  bool empty() const { return faults_.empty(); }
  /// Whether something was said of `key`, or of a section that holds it.
  bool concern(std::string_view key) const;
  /// A line for each fault, `file:line:column: key: reason`, in the order of the file, the overrides' after them.
  std::string text(const std::string& file, const std::vector<std::string>& overrides) const;
  /// The same, each by itself and all of them.
  std::vector<std::string> lines(const std::string& file, const std::vector<std::string>& overrides) const;

 private:
  std::vector<Fault> faults_;
  std::set<std::string, std::less<>> keys_;
};

}  // namespace penstock::config
