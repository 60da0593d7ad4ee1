// SPDX-License-Identifier: Apache-2.0
#include "app/time_account.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace penstock {

std::string_view name_of(Activity activity) {
  switch (activity) {
    case Activity::compute:
      return "compute";
    case Activity::waiting:
      return "waiting";
    case Activity::data:
      return "data";
    case Activity::validation:
      return "validation";
    case Activity::checkpoint:
      return "checkpoint";
    case Activity::other:
      return "other";
  }
  return "?";
}

std::array<TimeAccount::Row, activity_count> TimeAccount::over_ranks(const Communicator& world) const {
  std::array<Row, activity_count> rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto all = world.all_gather(seconds_[i].value);
    double sum = 0;
    for (const double value : all) sum += value;
    rows[i] = {static_cast<Activity>(i), *std::min_element(all.begin(), all.end()),
               sum / static_cast<double>(all.size()), *std::max_element(all.begin(), all.end())};
  }
  return rows;
}

std::string to_text(const std::array<TimeAccount::Row, activity_count>& rows) {
  double total = 0;
  for (const auto& row : rows) total += row.average;
  std::string text =
      fmt::format("{:<12}{:>12}{:>12}{:>12}{:>8}\n", "seconds", "minimum", "average", "maximum", "share");
  for (const auto& row : rows) {
    text += fmt::format("{:<12}{:>12.3f}{:>12.3f}{:>12.3f}{:>7.1f}%\n", name_of(row.activity), row.minimum, row.average,
                        row.maximum, total > 0 ? 100 * row.average / total : 0.0);
  }
  text.pop_back();
  return text;
}

}  // namespace penstock
