// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace penstock {

/// What the process returns to its shell; scripts and batch systems branch on these (design, section 8; 74 is
/// decision 0007).
enum class ExitCode : int {
  finished = 0,
  internal = 1,       ///< a fault of the program itself
  bad_input = 2,      ///< bad command line or deck
  does_not_fit = 3,   ///< planned bytes exceed the memory of a device or node
  damaged_input = 4,  ///< unreadable or damaged data, schedule file or checkpoint
  not_finite = 5,     ///< loss or gradients not finite
  no_progress = 6,    ///< the watchdog saw no action complete
  cannot_write = 74,  ///< an output file cannot be written: make room for it and submit again
  stopped_early = 75  ///< stopped on purpose after a checkpoint: submit again
};

/// The one exception type. The message says what is wrong, where in the user's terms, what was expected, what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error{message}, code_{code} {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Throws an Error with a formatted message.
template <class... Arguments>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Error{code, fmt::format(format, std::forward<Arguments>(arguments)...)};
}

/// Throws an internal Error unless `condition` holds: for what only a fault of the program can break.
template <class... Arguments>
void require(bool condition, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (!condition) fail(ExitCode::internal, format, std::forward<Arguments>(arguments)...);
}

/// `<file>: <what the operating system says of errno>`, for failed system calls.
std::string system_error_text(const std::string& doing, int error_number);

}  // namespace penstock
