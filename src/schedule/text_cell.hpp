// SPDX-License-Identifier: Apache-2.0
//
// Private to the text form: the cells of a schedule file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "schedule/action.hpp"

namespace penstock {

/// The cell for a message: short, and printable whatever it holds.
std::string shown(std::string_view cell);

/// Where the reader is, for its messages.
struct Cell {
  const std::string& file;
  std::size_t row = 0;  // from 1
  std::size_t column = 0;
  std::string_view text;

  template <class... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    fail(ExitCode::damaged_input, "{}: row {}, cell {} `{}`: {}", file, row, column, shown(text),
         fmt::format(format, std::forward<Arguments>(arguments)...));
  }
};

/// The text without blanks at its ends.
std::string_view trimmed(std::string_view text);

/// Appends the actions of the cell's text: none of an empty one or of those that are skipped, two of a pair.
/// @throws Error damaged_input naming the cell, with what was expected
void read_actions(const Cell& cell, std::vector<Action>& out);

}  // namespace penstock
