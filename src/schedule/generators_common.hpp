// SPDX-License-Identifier: Apache-2.0
//
// What generators share: checks, placements of stages, an empty schedule. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
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

/// The options with at least two micro-batches a rank: what generators need that make a whole pattern first, or whose
/// work grows with the square of the ranks. @throws as check_sizes, of these many
GeneratorOptions with_full_pipeline(GeneratorOptions options);

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

/// Writes one rank's list by chunks: for each pass and chunk the micro-batches come in ascending order.
class ChunkList {
 public:
  struct Entry {
    Op op = Op::forward;  ///< F, B or I
    std::int32_t chunk = 0;
  };

  ChunkList(Placement placement, Rank rank, std::int32_t pipeline, std::int32_t micro_batches)
      : placement_{placement}, rank_{rank}, pipeline_{pipeline}, micro_batches_{micro_batches} {}

  /// Appends the pass of the chunk's next micro-batch; nothing once all are there.
  void add(Entry entry);
  /// The entries one behind the other, all of them `times` times.
  void add(std::int32_t times, std::initializer_list<Entry> entries);
  /// Appends the W of the oldest I that has none. @pre there is one
  void add_oldest_weight();
  std::vector<Action> take() { return std::move(actions_); }

 private:
  Placement placement_;
  Rank rank_;
  std::int32_t pipeline_;
  std::int32_t micro_batches_;
  std::map<std::pair<bool, std::int32_t>, std::int32_t> next_;  // micro-batch, by (is it a forward, chunk)
  std::deque<Action> weights_;
  std::vector<Action> actions_;
};

}  // namespace penstock
