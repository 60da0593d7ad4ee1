// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trace/timeline.hpp"

namespace penstock {

/// Writes `timeline` as the HDF5 file `path` (doc/files.md): beside it first, then renamed over it. Not collective: one
/// rank writes the spans of all. On the process's I/O thread, like every HDF5 call.
/// @throws Error cannot_write, with the reason of the system or of HDF5.
void write_trace(const std::string& path, const Timeline& timeline);

/// Reads a file of write_trace back, equal to the bit.
/// @throws Error damaged_input, naming the file, if it is missing, truncated, damaged or no trace.
Timeline read_trace(const std::string& path);

}  // namespace penstock
