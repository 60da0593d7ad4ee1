// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/index.hpp"
#include "schedule/action.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// An action on a rank: the node of the dependence graph.
struct ActionOnRank {
  Rank rank;
  Action action;
  friend auto operator<=>(const ActionOnRank&, const ActionOnRank&) = default;
};

/// Where each action of a schedule stands in the lists: built once, then each question is an array read.
///
/// Keeps a reference: the schedule must outlive it, unchanged. Actions with ids beyond the schedule's shape are not
/// found; of an action listed twice the first is.
class ScheduleIndex {
 public:
  explicit ScheduleIndex(const Schedule& schedule);

  const Schedule& schedule() const { return *schedule_; }
  /// The action's position in the list of its rank, from 0; empty if that rank does not list it.
  std::optional<std::int32_t> position_of(const ActionOnRank& node) const;
  /// Whether the action is in the list of the rank that holds its stage. @pre not validate, which has no stage.
  bool contains(const Action& action) const;
  /// What an action waits for because of its place in its list, where parameters are streamed: for an action that
  /// reads parameters the position of the latest fetch of its stage before it; for a fetch that of the latest eviction
  /// before it, whatever the stage. Empty if there is none.
  std::optional<std::int32_t> list_need(const ActionOnRank& node) const;

 private:
  struct Place {
    std::int32_t rank = -1;
    std::int32_t position = -1;
  };
  /// Of an op that names micro-batches: none if it is not listed, else one for each part up to the largest listed.
  struct Columns {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  /// Where in places_ the action's place is kept; empty for ids beyond the shape.
  std::optional<std::size_t> slot_of(const ActionOnRank& node) const;

  void number_columns();
  void find_list_needs(Rank rank);

  const Schedule* schedule_;
  std::array<Columns, op_count> columns_of_{};
  std::int32_t columns_ = 0;
  std::size_t first_per_stage_ = 0;  // places_ before: [stage, micro-batch, slice, column]; from here on: [stage, op]
  std::size_t first_validate_ = 0;   // from here on: [rank]
  std::vector<Place> places_;
  PerRank<std::vector<std::int32_t>> list_needs_;  // by list position; only where parameters are streamed
};

/// Whether the action's ids are below the schedule's limits, and its part is one; what is unused must be 0.
bool is_within(const Schedule& schedule, const Action& action);

}  // namespace penstock
