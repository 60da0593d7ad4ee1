// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedule/generators.hpp"
#include "schedule/kinds.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"

namespace penstock {

/// Stage s on rank s % p, v stages on each.
inline PerStage<Rank> dealt(std::int32_t p, std::int32_t v) {
  PerStage<Rank> rank_of;
  for (std::int32_t stage = 0; stage < p * v; ++stage) rank_of.push_back(Rank{stage % p});
  return rank_of;
}

/// Calls visit(Schedule) with compute actions of every kind that cuts no sequences, and forwards alone, over p 1..8, m
/// 1..12, v 1..4 where the kind allows it.
template <class Visit>
void for_each_generated(const Visit& visit) {
  for (int p = 1; p <= 8; ++p) {
    for (const int m : {1, 2, 3, 4, 5, 7, 8, 12}) {
      for (int v = 1; v <= 4; ++v) {
        const GeneratorOptions options{p, v, m};
        for (const KindEntry& entry : kind_table()) {
          if (!entry.limits.slices && faults_of(entry.kind, options).empty()) visit(entry.generator(options));
        }
        visit(forward_only(dealt(p, v), m));
      }
    }
  }
}

inline std::string describe(const Schedule& schedule) {
  return fmt::format("{} p={} stages={} m={}", schedule.name, schedule.shape.ranks, schedule.shape.stages,
                     schedule.shape.micro_batches);
}

/// A rank's list in text, separated by blanks.
inline std::string row(const Schedule& schedule, Rank rank) {
  std::vector<std::string> cells;
  for (const Action& action : schedule.actions[rank]) cells.push_back(to_text(action, schedule.shape.slices));
  return fmt::format("{}", fmt::join(cells, " "));
}

inline std::string texts(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.text + "\n";
  return text;
}

/// The position in the list of the action with this text; the list's length if there is none.
inline std::ptrdiff_t find(const Schedule& schedule, Rank rank, const std::string& text) {
  const auto& list = schedule.actions[rank];
  const auto is_it = [&](const Action& action) { return to_text(action, schedule.shape.slices) == text; };
  return std::find_if(list.begin(), list.end(), is_it) - list.begin();
}

inline Action erase(Schedule& schedule, Rank rank, const std::string& text) {
  const auto place = schedule.actions[rank].begin() + find(schedule, rank, text);
  const Action action = *place;
  schedule.actions[rank].erase(place);
  return action;
}

/// Moves one action directly before another of the same list.
inline void move_before(Schedule& schedule, Rank rank, const std::string& text, const std::string& before) {
  const Action action = erase(schedule, rank, text);
  schedule.actions[rank].insert(schedule.actions[rank].begin() + find(schedule, rank, before), action);
}

}  // namespace penstock
