// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "trace/draw.hpp"
#include "trace/label.hpp"
#include "trace/summary.hpp"

namespace penstock {
namespace {

constexpr int least_columns = 40;
constexpr std::size_t label_columns = 9;  // "rank 1234"

/// The time that the row of characters stands for.
struct Scale {
  double start = 0;
  double seconds_per_column = 1;
  std::size_t columns = 0;
  std::size_t column_of(Seconds time) const {
    const auto column = std::llround((time.value - start) / seconds_per_column);
    return std::min(columns, static_cast<std::size_t>(std::max(0LL, column)));
  }
};

Scale scale_of(const Timeline& timeline, std::size_t columns) {
  double start = std::numeric_limits<double>::infinity();
  double end = -start;
  for (const auto& span : timeline.spans) {
    if (span.lane != Lane::compute) continue;
    start = std::min(start, span.start.value);
    end = std::max(end, span.end.value);
  }
  const double length = end > start ? end - start : 1.0;
  return {std::isfinite(start) ? start : 0.0, length / static_cast<double>(columns), columns};
}

/// A cell of `width` characters: the longest label that fits, then '-' up to a blank that sets it off from the next.
std::string cell_of(const Action& action, std::size_t width) {
  std::string label = short_label(action);
  if (label.size() > width) label = std::string{name_of(action.op)};
  label.resize(std::min(label.size(), width));
  if (label.size() + 1 >= width) return label + std::string(width - label.size(), ' ');
  return label + std::string(width - label.size() - 1, '-') + ' ';
}

void draw_span(const Span& span, const Scale& scale, std::string& row) {
  const std::size_t begin = scale.column_of(span.start);
  const std::size_t end = scale.column_of(span.end);
  if (begin < end) row.replace(begin, end - begin, cell_of(span.action, end - begin));
}

std::string duration_text(double seconds, TimeUnit unit) {
  if (unit == TimeUnit::price) return fmt::format("{:.4g} {}", seconds, seconds == 1 ? "unit" : "units");
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.1f} us", seconds * 1e6);
}

}  // namespace

std::string draw_text(const Timeline& timeline, int columns, TimeUnit unit) {
  const auto width = static_cast<std::size_t>(std::max(columns, least_columns)) - label_columns - 1;
  const Scale scale = scale_of(timeline, width);
  std::vector<std::string> rows(static_cast<std::size_t>(timeline.ranks), std::string(width, '.'));
  for (const auto& span : timeline.spans) {
    if (span.lane == Lane::compute) draw_span(span, scale, rows.at(static_cast<std::size_t>(span.rank)));
  }
  std::string text;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) text += fmt::format("rank {:<4} {}\n", rank, rows[rank]);
  const auto summary = summarize(timeline);
  return text + fmt::format("{}: {} in all, {} a column, bubble {:.1f} %\n", timeline.schedule,
                            duration_text(scale.seconds_per_column * static_cast<double>(width), unit),
                            duration_text(scale.seconds_per_column, unit), 100 * summary.bubble_makespan);
}

}  // namespace penstock
