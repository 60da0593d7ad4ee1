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
  ExchangeRule exchange;                        ///< slimpipe
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

/// Zero bubble in the memory of 1F1B (Qi et al., "Zero bubble pipeline parallelism", 2023, ZB-H1): 1F1B's order of F
/// and I, with W where a rank would wait. A rank keeps at most p micro-batches. With F = I = W = 1 a step lasts 3 m + 2
/// p - 1 - min(m, p): from m = p on each rank idles p-1, a third of 1F1B's, and (p-1)/(3m+p-1) of the time.
Schedule zb_h1(const GeneratorOptions& options);

/// Zero bubble with twice the forwards in flight (same paper, ZB-H2): a rank keeps at most 2p-1 micro-batches. Lasts as
/// long as zb_h1, but from m = 2p-1 on every rank is busy from its own first action to its own last: no bubble by span.
Schedule zb_h2(const GeneratorOptions& options);

/// Zero bubble in the memory of 1F1B (Qi et al., "Pipeline parallelism with controllable memory", 2024, V-ZB): stages
/// in a V, s < p on rank s and s >= p on rank 2p-1-s. A rank keeps at most 2p stages' activations, p micro-batches.
/// With F = I = W = 1 lasts 6m + p-1 from m = p on, and has no bubble by span from m = 2p-1 on.
Schedule zb_v(const GeneratorOptions& options);

/// zb_v's stages with half the activations (same paper, V-Half): at most floor((p+2)/2) micro-batches. The order
/// repeats a building block of six units. With F = I = W = 1 and p >= 3 each rank idles max(4p-3-2m, 3p-5 + p mod 2),
/// half of the 6 (p-1) of 1F1B in these units, a bit less.
Schedule v_half(const GeneratorOptions& options);

/// zb_v's stages with a third of the activations (same paper, V-Min): at most floor((p+4)/3) micro-batches. As v_half
/// with the shortest building block; for p >= 3 and any m each rank idles 4p-5, two thirds of 1F1B's.
Schedule v_min(const GeneratorOptions& options);

/// DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe): zb_v's stages, forwards of one chunk beside backwards of the
/// other; W apart from I at both ends only. Keeps at most 2p+1 stages' activations. With F = I = W = 1, B = 2 lasts 6m
/// + p-1 from m = 2p on: each rank idles p-1. Published is (PP/2-1)(F&B + B - 3W) = 2 (p-1), where F&B, a pair that may
/// overlap, is one action of 3 units; here it is two, and the result of the first is sent on before the second ends.
Schedule dualpipe_v(const GeneratorOptions& options);

/// Waves (after Liu et al., "Hanayo", 2023): stages go down the ranks and back up, once a wave; w waves are v = 2w
/// virtual stages. Micro-batches in groups of p, wave after wave. Keeps at most v p stages' activations, p
/// micro-batches, and where p divides m (with one wave: from m = p on) lasts 3 v m + 4 (p-1) with F = 1, B = 2. The
/// idle 4 (p-1) is 2/(3w) of 1F1B's 3 v (p-1), and the least that any order can reach with p micro-batches: the last
/// rank waits p-1 for its first forward, p-1 for its first backward after all its forwards, and 2 (p-1) after its last.
Schedule hanayo(const GeneratorOptions& options);

/// The order of a rank's forwards where there is nothing else.
enum class ForwardOrder : std::uint8_t {
  as_early_as_possible,  ///< with F of one unit, at each moment the deepest stage that is ready, and of that the first
                         ///< micro-batch; with stage s on rank s % p that is interleaved order
  stage_by_stage         ///< each stage for all micro-batches, so that its parameters are fetched once
};

/// Forwards alone, for evaluation, over stages that lie as `rank_of` says (a hand-written schedule may deal them in any
/// way): nothing is kept but the keys and values that later slices of a sequence need. In both orders all lists follow
/// one order of time, so none can wait in a circle.
/// @throws Error bad_input without a stage, a micro-batch or a slice, or for too many of them.
Schedule forward_only(const PerStage<Rank>& rank_of, std::int32_t micro_batches, std::int32_t slices = 1,
                      ForwardOrder order = ForwardOrder::as_early_as_possible);

/// The training schedules by the names that decks use: "gpipe", "1f1b", ... (schedule/kinds).
const std::vector<std::string_view>& schedule_kinds();

/// @throws Error bad_input for another name, listing the known ones; and what the generator throws.
Schedule generate(std::string_view kind, const GeneratorOptions& options);

}  // namespace penstock
