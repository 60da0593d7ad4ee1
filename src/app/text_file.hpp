// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace penstock {

/// Writes a text to `path`, or to standard output if that is "-". @throws Error cannot_write.
void write_text(const std::string& path, const std::string& text);

/// Gives a file that stands at `path` the name `<path>.previous.N`, N the first free number, so that it is not
/// overwritten. Returns a line that says so, or "" where there is no regular file. @throws Error cannot_write.
std::string move_aside(const std::string& path);

/// The bytes of a schedule file. @throws Error damaged_input if it cannot be read.
std::string read_text(const std::string& path);

}  // namespace penstock
