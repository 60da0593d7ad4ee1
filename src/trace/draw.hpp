// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trace/timeline.hpp"

namespace penstock {

/// What the times of a timeline count: seconds, or the units of made-up prices (simulate's unit_prices).
enum class TimeUnit : bool { second, price };

/// Draws the compute lanes as text, one row per rank, to scale over `columns` characters (at least 40); '.' is idle. A
/// span is drawn as its op and micro-batch ("F3"), as its op alone or as a mark where it is too short for more. Meant
/// for one step (only_step). Ends with a line that gives the scale.
std::string draw_text(const Timeline& timeline, int columns, TimeUnit unit = TimeUnit::second);

/// Draws the timeline as an SVG picture: a row per rank and lane that has spans of some length, a box per span coloured
/// by op and lighter for later slices, a time axis, a legend, and the bubble fraction in the title. As wide as numbers
/// of micro-batches need, within limits. Meant for one step (only_step).
std::string draw_svg(const Timeline& timeline, TimeUnit unit = TimeUnit::second);

}  // namespace penstock
