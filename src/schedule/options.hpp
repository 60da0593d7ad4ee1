// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/describe.hpp"

namespace penstock {

enum class ScheduleKind : std::uint8_t {
  gpipe,        ///< all forwards, then all backwards
  one_f_one_b,  ///< 1f1b: a backward after each forward, once the pipeline is full
  interleaved   ///< 1f1b over several virtual stages a rank
};

constexpr std::array<EnumName<ScheduleKind>, 3> enum_names(ScheduleKind) {
  return {{{ScheduleKind::gpipe, "gpipe"},
           {ScheduleKind::one_f_one_b, "1f1b"},
           {ScheduleKind::interleaved, "interleaved"}}};
}

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
  visit("kind", options.kind,
        {.help = "gpipe: all forwards, then all backwards; 1f1b: one forward, one backward; interleaved: 1f1b over "
                 "several virtual stages a rank",
         .not_beside = "file"});
  visit("virtual", options.virtual_stages,
        {.help = "stages of one rank; more than 1 with interleaved, gpipe or a file",
         .unit = "stages",
         .range = between(1, 1024)});
  visit("split_backward", options.split_backward,
        {.help = "input and weight gradients as two actions, I and W, in place of B"});
}

}  // namespace penstock
