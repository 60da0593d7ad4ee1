// SPDX-License-Identifier: Apache-2.0
//
// Generators write compute actions only, F and B, or F, I and W; schedule/passes adds the rest. Where nothing else is
// said, stage s is on rank s % pipeline. In every schedule the backwards of a stage take the micro-batches in ascending
// order (design, section 1, sentence 4). All throw Error bad_input for what the definition of the schedule does not
// allow (schedule/kinds).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"

namespace penstock {

struct GeneratorOptions {
  std::int32_t pipeline = 1;                   ///< ranks
  std::int32_t virtual_stages = 1;             ///< stages of each rank
  std::int32_t micro_batches = 1;              ///< of one replica and step; may be fewer than the ranks
  std::int32_t slices = 1;                     ///< of one sequence
  std::optional<std::int32_t> forwards_first;  ///< forwards of the first rank before its first backward
  std::int32_t forward_virtual = 1;   ///< forward stages of each rank, where the two passes are cut differently
  std::int32_t backward_virtual = 1;  ///< backward stages of each rank, likewise
  std::optional<std::int32_t> forward_stages;   ///< of all ranks, in place of forward_virtual
  std::optional<std::int32_t> backward_stages;  ///< of all ranks, in place of backward_virtual
  bool early_recompute = false;  ///< R need not wait for the output's gradient (mobius, spipe; the others never wait)
};

/// All forwards, then all backwards. With virtual stages breadth-first: every micro-batch through one stage before the
/// next. Keeps every micro-batch's activations; idle (p-1)/(v m + p-1) of the time.
Schedule gpipe(const GeneratorOptions& options);

/// gpipe's order under the name it has with virtual stages (Lamy-Poirier, "Breadth-first pipeline parallelism", 2023):
/// stages deal round and round, all micro-batches go through one before the next. Idle (p-1)/(v m + p-1) of the time
/// where m >= p; keeps v m.
Schedule breadth_first(const GeneratorOptions& options);

/// One forward, one backward in turn once the pipeline is full. Rank r keeps min(m, p - r) micro-batches; idle (p-1)/(m
/// + p-1).
Schedule one_f_one_b(const GeneratorOptions& options);

/// 1F1B over the virtual stages in groups of p micro-batches (Megatron's): idle (p-1)/(v m + p-1) where p divides m.
/// Where it does not, the last group is short: the order is that of the next multiple of p, without the micro-batches
/// that are not there. With one virtual stage it is one_f_one_b.
Schedule interleaved(const GeneratorOptions& options);

/// Forwards alone, for evaluation, over stages that lie as `rank_of` says (a hand-written schedule may deal them in any
/// way): nothing is kept. With F of one unit, each rank runs at each moment the deepest stage that is ready, and of
/// that the first micro-batch; with stage s on rank s % p that is interleaved order. All lists follow the one order of
/// time, so none can wait in a circle.
/// @throws Error bad_input without a stage or a micro-batch, or for too many of them.
Schedule forward_only(const PerStage<Rank>& rank_of, std::int32_t micro_batches);

/// The training schedules by the names that decks use: "gpipe", "1f1b", ... (schedule/kinds).
const std::vector<std::string_view>& schedule_kinds();

/// @throws Error bad_input for another name, listing the known ones; and what the generator throws.
Schedule generate(std::string_view kind, const GeneratorOptions& options);

}  // namespace penstock
