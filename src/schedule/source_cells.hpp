// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/action.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// Where a schedule file has its actions: findings about the lists that were completed from it name cells that its
/// writer knows.
class SourceCells {
 public:
  /// @throws Error as read_schedule_csv
  SourceCells(std::string_view csv, const std::string& name);

  /// The cell, from 1, of the row of `rank` from which the action at `position` of its list comes; nothing for one that
  /// was added. An action that is listed twice comes from the file's first cell with it, then from its second.
  std::optional<std::size_t> cell_of(const Schedule& schedule, Rank rank, std::int32_t position) const;

 private:
  std::map<std::pair<Rank, Action>, std::vector<std::size_t>> cells_;
};

}  // namespace penstock
