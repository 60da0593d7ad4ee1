// SPDX-License-Identifier: Apache-2.0
//
// The validator's rules, one function each; private to the module.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedule/graph.hpp"
#include "schedule/schedule_index.hpp"
#include "schedule/source_cells.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"

namespace penstock::rules {

/// An action and where it stands.
struct Placed {
  Rank rank;
  std::int32_t position = 0;
  Action action;
  ActionOnRank node() const { return {rank, action}; }
};

/// Behind the number of an action that is not in the user's file.
inline constexpr std::string_view of_completed_list = "of the completed list";

/// Collects findings in the words that they share.
class Findings {
 public:
  explicit Findings(const Schedule& schedule, const SourceCells* source = nullptr)
      : schedule_{schedule}, source_{source} {}

  template <class... Arguments>
  void add(Rule rule, const Placed& at, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    found_.push_back(
        {rule, at.rank, at.position,
         fmt::format("V{} rank {}, {} `{}`: {}", static_cast<int>(rule), at.rank, place(at.rank, at.position),
                     text(at.action), fmt::format(format, std::forward<Arguments>(arguments)...))});
  }
  /// A finding about a rank's list as a whole, or about what it lacks.
  template <class... Arguments>
  void add(Rule rule, Rank rank, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    found_.push_back({rule, rank, -1,
                      fmt::format("V{} rank {}: {}", static_cast<int>(rule), rank,
                                  fmt::format(format, std::forward<Arguments>(arguments)...))});
  }
  std::string text(const Action& action) const { return to_text(action, schedule_.shape.slices); }
  /// Of an action of a list, in the terms of who wrote it: "action 4", "row 1, cell 3".
  std::string place(Rank rank, std::int32_t position) const {
    if (source_ == nullptr) return fmt::format("action {}", position + 1);
    const auto cell = source_->cell_of(schedule_, rank, position);
    if (cell) return fmt::format("row {}, cell {}", rank.value() + 1, *cell);
    return fmt::format("action {} {}", position + 1, of_completed_list);
  }
  std::vector<Finding> result() && { return std::move(found_); }

 private:
  const Schedule& schedule_;
  const SourceCells* source_;
  std::vector<Finding> found_;
};

/// Whether the action is one that the other rules can look at: ids within the shape, on its rank.
bool is_placed(const Schedule& schedule, const ActionOnRank& node);

/// Calls visit(Placed) for every action that is placed, ranks and list positions ascending.
template <class Visit>
void visit_placed(const Schedule& schedule, const Visit& visit) {
  for (const Rank rank : all<Rank>(schedule.actions.size())) {
    std::int32_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      if (is_placed(schedule, {rank, action})) visit(Placed{rank, position, action});
      ++position;
    }
  }
}

/// Whether the tables of the schedule agree about ranks and stages, so that the other rules can be asked.
bool check_tables(const Schedule& schedule, Findings& findings);
void check_placement(const Schedule& schedule, Findings& findings);
void check_coverage(const ScheduleIndex& index, Findings& findings);
void check_channels(const ScheduleIndex& index, Findings& findings);
void check_needs(const ScheduleIndex& index, Findings& findings);
void check_cycles(const ScheduleIndex& index, const std::vector<MemoryEdge>& memory_edges, Findings& findings);
void check_buffers(const Schedule& schedule, Findings& findings);
void check_host(const ScheduleIndex& index, Findings& findings);
void check_accumulation(const Schedule& schedule, Findings& findings);
void check_versions(const ScheduleIndex& index, Findings& findings);

}  // namespace penstock::rules
