// SPDX-License-Identifier: Apache-2.0
//
// What generators share: checks, placements of stages, an empty schedule. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/generators.hpp"
#include "schedule/options.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// @throws Error bad_input for sizes below 1, for more forwards than one step can hold, and for every rule of the kind
/// that the options break.
void check_options(ScheduleKind kind, const GeneratorOptions& options);

/// The part of check_options that is the same for every kind.
void check_sizes(const GeneratorOptions& options);

/// Which rank has a stage.
enum class Placement : std::uint8_t {
  round_robin,  ///< stage s on rank s mod p
  wave          ///< ranks ascending, then descending, then ascending; with two stages a rank the letter V
};

Rank rank_of_stage(Placement placement, Stage stage, std::int32_t pipeline);

/// The stage of one of the rank's chunks; chunks count from 0 in the order of the stages.
Stage stage_of_chunk(Placement placement, Rank rank, std::int32_t chunk, std::int32_t pipeline);

/// A schedule with its shape, placement and empty lists; no stage recomputes.
Schedule empty_schedule(std::string name, const GeneratorOptions& options, Placement placement);

Action action_of(Op op, Stage stage, std::int32_t micro_batch, std::int32_t slice = 0);

/// One rank's forwards and backwards, each in its order, taken in turn after `warm_up` forwards.
std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                std::size_t warm_up);

/// Takes away micro-batches that only filled the last group. No action of another micro-batch needs one of theirs, so
/// what is left can run wherever the whole could.
void erase_from(std::vector<Action>& actions, std::int32_t micro_batches);

}  // namespace penstock
