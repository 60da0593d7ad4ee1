// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/describe.hpp"

namespace penstock {

/// What each is stands in the table of schedule/kinds.cpp, its closed form in schedule/generators.hpp.
enum class ScheduleKind : std::uint8_t { gpipe, one_f_one_b, interleaved, breadth_first };

constexpr auto enum_names(ScheduleKind) {
  return std::to_array<EnumName<ScheduleKind>>({{ScheduleKind::gpipe, "gpipe"},
                                                {ScheduleKind::one_f_one_b, "1f1b"},
                                                {ScheduleKind::interleaved, "interleaved"},
                                                {ScheduleKind::breadth_first, "breadth_first"}});
}

/// The kinds with a few words on each: "gpipe: all forwards, then all backwards; 1f1b: ...".
std::string_view help_on_kinds();

/// The section `schedule` of a deck.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  std::int32_t virtual_stages = 1;  ///< stages of one rank
  bool split_backward = false;      ///< I and W in place of B
  std::optional<std::string> file;  ///< a hand-written schedule in place of a kind
  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, ScheduleOptions& options) {
  visit(
      "file", options.file,
      {.help = "a hand-written schedule: CSV, a row a rank, as PyTorch's pipelining writes it; takes the place of kind",
       .when_absent = "the schedule of kind"});
  visit("kind", options.kind, {.help = help_on_kinds(), .not_beside = "file"});
  visit("virtual", options.virtual_stages,
        {.help = "stages of one rank; which numbers a kind takes is in doc/schedules.md",
         .unit = "stages",
         .range = between(1, 1024)});
  visit("split_backward", options.split_backward,
        {.help = "input and weight gradients as two actions, I and W, in place of B"});
}

}  // namespace penstock
