// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trace/timeline.hpp"

namespace penstock {

/// The timeline in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: a process
/// per rank, a thread per lane (several where spans of a lane overlap, as messages do), a complete event per span
/// (whole microseconds), inside it, at its end, one "waiting" as long as all that it waited, whenever that was, and a
/// counter per rank for its device memory.
std::string chrome_trace(const Timeline& timeline);

}  // namespace penstock
