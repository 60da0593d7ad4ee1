// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace penstock::log {

/// Names this process in every line that it writes ("rank 3: ..."), and says whether notes are shown: the first rank
/// shows them, the others only warnings and errors. Before the call a line carries no rank.
void set_process(int rank, bool shows_notes);

/// Copies every line that is shown, and those shown before, also to `path` (the run's log), appending. Throws Error if
/// it cannot be opened.
void copy_to_file(const std::string& path);

/// A line for the user on standard output, from the first rank only.
void note(std::string_view line);

/// A line on standard error, with the rank.
void warning(std::string_view line);
void error(std::string_view line);

/// A line on standard error without a rank: for a failure that the ranks have agreed on, told by one of them.
void common_error(std::string_view line);

template <class... Arguments>
void note(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  note(std::string_view{fmt::format(format, std::forward<Arguments>(arguments)...)});
}
template <class... Arguments>
void warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  warning(std::string_view{fmt::format(format, std::forward<Arguments>(arguments)...)});
}

}  // namespace penstock::log
