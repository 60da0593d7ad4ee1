// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/kinds.hpp"
#include "schedule/passes.hpp"
#include "schedule/schedule_index.hpp"
#include "schedule/semantics.hpp"
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

/// The actions that one needs, in text.
inline std::vector<std::string> need_texts(const Schedule& schedule, const ActionOnRank& action) {
  const ScheduleIndex index{schedule};
  std::vector<std::string> texts;
  for (const ActionOnRank& need : needs(index, action)) texts.push_back(to_text(need.action, schedule.shape.slices));
  return texts;
}

/// "activations 1": the kind and the stage, or share of the vocabulary.
inline std::vector<std::string> buffer_texts(const std::vector<SymbolicBuffer>& buffers) {
  std::vector<std::string> texts;
  texts.reserve(buffers.size());
  for (const SymbolicBuffer& buffer : buffers)
    texts.push_back(fmt::format("{} {}", name_of(buffer.kind), buffer.stage));
  return texts;
}

/// Why no schedule of this kind is generated; empty if it is.
inline std::string refusal_of_kind(const std::string& kind, const GeneratorOptions& options) {
  try {
    generate(kind, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return "";
}

/// Why a file of this text, my.csv, is not read; "accepted" if it is.
inline std::string refusal_of_text(const std::string& text) {
  try {
    read_schedule_csv(text, "my.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    return error.what();
  }
  return "accepted";
}

/// Matches a finding that has `text` somewhere in its own.
inline auto a_finding(Rule rule, std::int32_t rank, const std::string& text) {
  return testing::AllOf(testing::Field("rule", &Finding::rule, rule),
                        testing::Field("rank", &Finding::rank, Rank{rank}),
                        testing::Field("text", &Finding::text, testing::HasSubstr(text)));
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
