// SPDX-License-Identifier: Apache-2.0
//
// Published runs as the simulator sees them, and what was published of them: SPipe's figures 9 and 15 (PACT 2025;
// results/expected.csv of github.com/mcrl/spipe) and SlimPipe's longest contexts (SC 2025).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/presets.hpp"
#include "plan/modelled_run.hpp"

namespace penstock::published {

/// Seconds of a step, and of its part on the devices: from the first fetch to the end of the last gradient's copy to
/// the host, as the authors' code takes it (cuda events around mobius_schedule and spipe_schedule).
struct StepSeconds {
  double elapsed = 0;
  double device_part = 0;
};

/// A row of figure 9.
struct SpipeRow {
  ModelPreset model;
  const char* name;
  std::int32_t ranks;
  std::int32_t sequence;
  StepSeconds mobius;
  StepSeconds spipe;

  double speed_up() const { return mobius.elapsed / spipe.elapsed; }
  /// The model whose two Mobius rows input/hardware/v100_spipe.yaml is calibrated on.
  bool is_calibration() const { return model == ModelPreset::spipe_19b; }
};

inline constexpr std::array<SpipeRow, 16> figure_9{{
    {ModelPreset::spipe_10b, "10B", 4, 1024, {11.92, 6.68}, {8.17, 6.01}},
    {ModelPreset::spipe_10b, "10B", 4, 2048, {17.33, 12.08}, {12.71, 11.23}},
    {ModelPreset::spipe_19b, "19B", 4, 1024, {21.61, 11.91}, {14.48, 10.08}},
    {ModelPreset::spipe_19b, "19B", 4, 2048, {32.68, 23.00}, {21.69, 19.33}},
    {ModelPreset::spipe_30b, "30B", 8, 1024, {27.86, 19.80}, {19.95, 17.90}},
    {ModelPreset::spipe_30b, "30B", 8, 2048, {43.52, 35.45}, {35.67, 33.55}},
    {ModelPreset::spipe_40b, "40B", 8, 1024, {37.07, 26.50}, {27.84, 25.14}},
    {ModelPreset::spipe_40b, "40B", 8, 2048, {62.75, 52.13}, {45.40, 42.69}},
    {ModelPreset::spipe_52b, "52B", 16, 1024, {40.51, 33.46}, {31.52, 29.44}},
    {ModelPreset::spipe_52b, "52B", 16, 2048, {67.99, 60.93}, {57.36, 55.28}},
    {ModelPreset::spipe_69b, "69B", 16, 1024, {54.60, 45.46}, {39.84, 37.43}},
    {ModelPreset::spipe_69b, "69B", 16, 2048, {95.95, 86.66}, {82.41, 79.93}},
    {ModelPreset::spipe_88b, "88B", 32, 1024, {63.30, 57.25}, {50.85, 49.03}},
    {ModelPreset::spipe_88b, "88B", 32, 2048, {112.87, 106.80}, {98.55, 96.86}},
    {ModelPreset::spipe_110b, "110B", 32, 1024, {81.34, 73.80}, {62.24, 60.04}},
    {ModelPreset::spipe_110b, "110B", 32, 2048, {144.46, 136.89}, {128.90, 126.71}},
}};

/// What all those runs share. Their code recomputes a stage before it waits for its output's gradient, keeps fp16
/// gradients, and does not clip.
inline ModelledRun offloaded_run(const HardwareOptions& hardware, ModelPreset model, std::int32_t ranks,
                                 std::int32_t sequence) {
  ModelledRun run;
  run.cost.model = preset_spec(model);
  run.cost.pipeline = ranks;
  run.cost.sequence = sequence;
  run.cost.micro_batch = 2;
  run.cost.gradients = Precision::bf16;
  run.hardware = hardware;
  run.micro_batches = 2 * ranks;
  run.schedule.early_recompute = true;
  run.recompute = Recompute::full;
  return run;
}

/// Two stages a rank; Adam runs when all gradients are there (the base optimizer looks for overflow over all ranks).
inline ModelledRun mobius_run(const HardwareOptions& hardware, ModelPreset model, std::int32_t ranks,
                              std::int32_t sequence) {
  ModelledRun run = offloaded_run(hardware, model, ranks, sequence);
  run.schedule.kind = ScheduleKind::mobius;
  run.schedule.virtual_stages = 2;
  run.steps_wait = StepsWait::for_norm;
  return run;
}

/// Each stage's Adam runs as soon as its gradients are there.
inline ModelledRun spipe_run(const HardwareOptions& hardware, ModelPreset model, std::int32_t ranks,
                             std::int32_t sequence) {
  ModelledRun run = offloaded_run(hardware, model, ranks, sequence);
  run.schedule.kind = ScheduleKind::spipe;
  run.schedule.forward_virtual = 2;
  run.schedule.backward_virtual = 6;
  run.steps_wait = StepsWait::for_reduction;
  return run;
}

inline StepSeconds simulated(const ModelledRun& run) {
  const Priced priced = price(run);
  const SimulatedStep step = simulate(priced, plan_ranks(priced));
  StepSeconds seconds{step.times.step.value, 0};
  for (const Span& span : step.timeline.spans) {
    if (span.lane != Lane::cpu) seconds.device_part = std::max(seconds.device_part, span.end.value);
  }
  return seconds;
}

/// A bar of figure 15: 19B, 4 ranks, sequences of 1024 tokens, 4 micro-batches.
struct AblationBar {
  const char* name;
  ModelledRun run;
  StepSeconds published;
};

inline std::array<AblationBar, 6> figure_15(const HardwareOptions& hardware) {
  const auto model = ModelPreset::spipe_19b;
  ModelledRun mobius = mobius_run(hardware, model, 4, 1024);
  mobius.micro_batches = 4;
  ModelledRun blocking = mobius;
  blocking.resident_stages = 1;
  ModelledRun optimizer = spipe_run(hardware, model, 4, 1024);
  optimizer.micro_batches = 4;
  ModelledRun checkpoints = optimizer;
  checkpoints.steps_wait = StepsWait::for_norm;
  ModelledRun fine = checkpoints;
  fine.schedule.checkpoint_messages = CheckpointMessages::synchronous;
  ModelledRun decoupled = fine;
  decoupled.schedule.backward_virtual = 2;
  return {{{"Mobius, blocking prefetch", blocking, {17.525, 7.759}},
           {"Mobius", mobius, {16.023, 6.281}},
           {"+ decoupled passes (2/2)", decoupled, {16.309, 6.545}},
           {"+ fine-grained stages (2/6)", fine, {15.582, 5.800}},
           {"+ asynchronous checkpoints", checkpoints, {15.275, 5.504}},
           {"+ asynchronous optimizer", optimizer, {12.720, 5.651}}}};
}

/// Llama 7B on 64 devices, tensor 8 x pipeline 8, nothing recomputed, optimizer on the devices.
inline ModelledRun context_run(const HardwareOptions& hardware, ScheduleKind kind, std::int32_t thousands) {
  ModelledRun run;
  run.cost.model = preset_spec(ModelPreset::slimpipe_7b);
  run.cost.pipeline = 8;
  run.cost.tensor = 8;
  run.cost.sequence = 1024 * thousands;
  run.cost.optimizer = Place::device;
  run.hardware = hardware;
  run.schedule.kind = kind;
  run.micro_batches = 16;  // enough for all that the two others keep in flight
  if (kind != ScheduleKind::one_f_one_b) run.schedule.virtual_stages = 4;  // one layer each
  if (kind == ScheduleKind::slimpipe) {
    run.schedule.slices = 64;
    run.schedule.vocabulary_parallel = true;
    run.cost.vocabulary_parallel = true;
    run.micro_batches = 2;
  }
  return run;
}

inline Bytes fullest_rank(const ModelledRun& run) {
  Bytes most;
  for (const RankPlan& plan : plan_ranks(price(run))) most = std::max(most, plan.peak);
  return most;
}

/// The most thousands (1024) of tokens whose fullest rank takes no more than `room`.
inline std::int32_t longest_context(const HardwareOptions& hardware, ScheduleKind kind, Bytes room) {
  std::int32_t fits = 0;
  std::int32_t too_long = 2048;
  while (too_long - fits > 1) {
    const std::int32_t middle = (fits + too_long) / 2;
    (fullest_rank(context_run(hardware, kind, middle)) <= room ? fits : too_long) = middle;
  }
  return fits;
}

/// In thousands of tokens.
inline constexpr std::int32_t context_1f1b = 124;
inline constexpr std::int32_t context_interleaved = 92;
inline constexpr std::int32_t context_slimpipe = 600;

}  // namespace penstock::published
