// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/units.hpp"
#include "kernels/kernels.hpp"
#include "memory/options.hpp"
#include "memory/plan.hpp"
#include "model/spec.hpp"
#include "schedule/options.hpp"
#include "schedule/partition.hpp"
#include "schedule/schedule.hpp"
#include "schedule/weight_placement.hpp"
#include "stage/stage.hpp"
#include "stage/vocabulary.hpp"

namespace penstock {

/// What the memory of a plan is for: training with validation and samples of text, or text alone, from a checkpoint.
enum class Purpose : std::uint8_t { training, text };

/// What a run's plan follows from.
struct RunShape {
  Purpose purpose = Purpose::training;
  ModelSpec model;
  std::int32_t pipeline = 1;
  std::int32_t replicas = 1;
  std::optional<std::vector<std::int32_t>> layers_per_stage;
  ScheduleOptions schedule;
  std::string schedule_csv;  ///< the text of schedule.file, when that is given
  Recompute recompute = Recompute::none;
  RecomputeList recompute_by_stage;  ///< takes its place
  /// By which weight gradients are placed (schedule.weight_gradients), of whole actions. The same on all ranks.
  Prices durations = unit_prices();
  StepsWait steps_wait = StepsWait::for_norm;  ///< of a schedule whose host actions are not in a file
  Rollback rollback = Rollback::copy;          ///< of steps that UNDO takes back
  double offload_activations = 0;              ///< share of what forwards keep that waits on the host
  bool stream_parameters = false;    ///< from the host for each stay on the device; mobius and spipe always do
  std::int32_t resident_stages = 2;  ///< stages whose parameters a device then holds at once
  std::int64_t sequence = 1;         ///< tokens
  std::int64_t micro_batch = 1;      ///< sequences
  std::int64_t global_batch = 1;     ///< sequences
  Bytes device_capacity{0};          ///< of one rank

  std::int64_t micro_batches() const { return global_batch / (micro_batch * replicas); }
};

/// Which tokens of each micro-batch lie in the tokens buffer of a stage: inputs first, then targets.
struct TokenBlocks {
  bool inputs = false;
  bool targets = false;
  std::int64_t count() const { return (inputs ? 1 : 0) + (targets ? 1 : 0); }
};

/// A schedule with the memory of all its ranks.
struct PlannedSchedule {
  Schedule schedule;
  PerStage<StageShape> stages;           ///< of the forward pass
  PerStage<StageShape> backward_stages;  ///< of a backward pass with stages of its own; else empty
  PerRank<VocabularyShape> shares;       ///< where the ranks share the vocabulary; else empty
  PerStage<StageBytes> bytes;            ///< by number of a stage: what those of both passes need; then of shares
  PerRank<RankPlan> ranks;               ///< empty where the plan's purpose leaves the schedule out

  const PerStage<StageShape>& stages_of(Pass pass) const {
    return pass == Pass::backward && schedule.backward ? backward_stages : stages;
  }
  /// Of the buffer {tokens, stage}, which serves the stages of both passes that have the number.
  TokenBlocks tokens_of(Stage stage) const;
  /// Raises `bytes` to what a stage of `pass` needs of the buffers that belong to its pass.
  void raise(StageBytes& bytes, const StageBytes& of_stage, Pass pass) const;
};

/// Everything about a run that is known before it: the same in `check`, on every rank, and with no device at hand.
struct RunPlan {
  RunShape shape;
  Partition partition;           ///< of the forward pass
  Partition backward_partition;  ///< of the backward pass; mostly the same
  PlannedSchedule training;
  PlannedSchedule validation;  ///< forward only, the batches and slices of training
  PlannedSchedule generation;  ///< likewise of one sequence; the last stage's workspace ends with a position's logits
  PerRank<PersistentLayout> persistent;

  /// Whether the host keeps masters and moments of before the last step, for UNDO.
  bool keeps_previous_states() const;
  /// The device bytes of a rank: the largest peak of its schedules, of those that the purpose needs. Equal to what the
  /// run hands out, to the byte.
  Bytes planned_device_bytes(Rank rank) const;
};

/// Lays out a run. `kernels` tell the scratch that they need.
/// @throws Error bad_input or damaged_input for shapes and schedule files that break a rule, with all findings of the
/// validator, and for more slices than tokens; the capacity is not looked at here.
RunPlan make_run_plan(const RunShape& shape, const Kernels& kernels);

/// The rank's plan that needs most, of all schedules that the purpose needs: what is enough for it is enough for all.
const RankPlan& largest_rank_plan(const RunPlan& plan);

/// @throws Error does_not_fit if a rank's plan exceeds the capacity, with a table of what takes the bytes, then
/// `advice`.
void check_fits(const RunPlan& plan, const Advice& advice = {});

/// What the fp32 logits [vocabulary] of one position take at the end of the generation schedule's last-stage workspace,
/// and where in it they lie.
Bytes generation_logits_bytes(const ModelSpec& model);
Bytes generation_logits_offset(const RunPlan& plan);

}  // namespace penstock
