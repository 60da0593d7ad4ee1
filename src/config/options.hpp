// SPDX-License-Identifier: Apache-2.0
//
// Options of the run as a whole, which no single module below owns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/describe.hpp"
#include "base/units.hpp"
#include "checkpoint/options.hpp"
#include "device/options.hpp"
#include "optimizer/options.hpp"

namespace penstock {

/// The section `training` of a deck.
struct TrainingOptions {
  std::int32_t steps = 1;
  std::int32_t sequence = 256;     ///< tokens
  std::int32_t global_batch = 16;  ///< sequences of one step, over all replicas
  std::int32_t micro_batch = 1;    ///< sequences
  std::uint64_t seed = 1;
  OptimizerOptions optimizer;           ///< its keys stand in `training` itself
  std::int32_t validate_every = 0;      ///< steps; 0: never
  std::int32_t validation_batches = 0;  ///< global batches; 0: all
  std::optional<Seconds> time_limit;    ///< since the start of the program
  Seconds watchdog{300};                ///< 0: none
  friend bool operator==(const TrainingOptions&, const TrainingOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, TrainingOptions& options) {
  visit("steps", options.steps,
        {.help = "optimizer steps of the whole run, those before a resume included",
         .unit = "steps",
         .range = at_least(1),
         .presence = Presence::required});
  visit("sequence", options.sequence, {.help = "length of a sequence", .unit = "tokens", .range = between(1, 1 << 24)});
  visit("global_batch", options.global_batch,
        {.help = "sequences of one step over all replicas: micro_batch x micro-batches x parallel.data",
         .unit = "sequences",
         .range = at_least(1)});
  visit("micro_batch", options.micro_batch,
        {.help = "sequences that go through the pipeline together", .unit = "sequences", .range = at_least(1)});
  visit("seed", options.seed, {.help = "seed of the initial weights, the order of the samples and the text sample"});
  describe(visit, options.optimizer);
  visit("validate_every", options.validate_every,
        {.help = "steps between validations, and one at the end; 0: none", .unit = "steps", .range = at_least(0)});
  visit(
      "validation_batches", options.validation_batches,
      {.help = "global batches of one validation; 0: all of data.validation", .unit = "batches", .range = at_least(0)});
  visit("time_limit", options.time_limit,
        {.help = "the run writes a checkpoint and ends with exit code 75 before this time is over",
         .range = more_than(0),
         .when_absent = "no limit"});
  visit("watchdog", options.watchdog,
        {.help = "without progress for this long the run ends with exit code 6; 0: no watchdog", .range = at_least(0)});
}

/// The text that a finished run writes.
struct SampleOptions {
  std::string prompt = "The ";
  std::int32_t tokens = 0;  ///< 0: no sample
  double temperature = 0.8;
  friend bool operator==(const SampleOptions&, const SampleOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, SampleOptions& options) {
  visit("prompt", options.prompt, {.help = "what the text starts with"});
  visit("tokens", options.tokens,
        {.help = "length of the text after the prompt; 0: none", .unit = "tokens", .range = at_least(0)});
  visit("temperature", options.temperature,
        {.help = "divides the logits before a token is drawn; 0: always the likeliest token", .range = at_least(0)});
}

/// The section `output` of a deck.
struct OutputOptions {
  std::string directory = "run";
  CheckpointOptions checkpoint;  ///< its keys stand in `output` itself
  bool trace = false;
  std::int32_t trace_steps = 3;
  bool progress = true;
  SampleOptions sample;
  friend bool operator==(const OutputOptions&, const OutputOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, OutputOptions& options) {
  visit("directory", options.directory,
        {.help = "folder of the run's files, made when missing; relative to the working directory"});
  describe(visit, options.checkpoint);
  visit("trace", options.trace, {.help = "write trace.h5: when each action ran, and the memory in use"});
  visit("trace_steps", options.trace_steps,
        {.help = "how many steps, the last of the run, the trace holds", .unit = "steps", .range = at_least(1)});
  visit("progress", options.progress, {.help = "show a line for each step"});
  visit("sample", options.sample, {.help = "text that the trained model writes at the end of the run"});
}

/// Where a rank ends its own process as a crash would.
struct KillOptions {
  std::int32_t step = 0;  ///< from 1; 0: nowhere
  std::int32_t rank = 0;  ///< of the job
  std::string action;
  friend bool operator==(const KillOptions&, const KillOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, KillOptions& options) {
  visit("step", options.step,
        {.help = "step, counted from 1, in which a rank kills its own process; 0: none",
         .unit = "steps",
         .range = at_least(0)});
  visit("rank", options.rank, {.help = "which rank of the job does", .range = at_least(0)});
  visit("action", options.action,
        {.help = "before which of its actions, as `penstock show --actions` lists them (3B1, 2OFFLOAD_G, VALIDATE), or "
                 "before "
                 "the first of an op (B, OFFLOAD_G); CHECKPOINT: when its part of the checkpoint behind the step is on "
                 "the disk, and the file has not got its name yet"});
}

/// The section `testing` of a deck: faults put in on purpose, to see that the program stands them.
struct TestingOptions {
  DelayOptions delays;
  KillOptions kill;
  std::vector<std::int32_t> non_finite_steps;  ///< from 1
  std::optional<std::int32_t> delay_rank;      ///< of the pipeline, on the priced device
  Seconds rank_delay{0};
  friend bool operator==(const TestingOptions& a, const TestingOptions& b) {
    return a.delays.seed == b.delays.seed && a.delays.longest == b.delays.longest && a.kill == b.kill &&
           a.non_finite_steps == b.non_finite_steps && a.delay_rank == b.delay_rank && a.rank_delay == b.rank_delay;
  }
};

template <class Visitor>
void describe(Visitor& visit, TestingOptions& options) {
  visit("delays", options.delays, {.help = "random waits put before queued work; no result may change"});
  visit("kill", options.kill, {.help = "the process of one rank dies, as in a crash"});
  visit(
      "non_finite_steps", options.non_finite_steps,
      {.help = "steps, counted from 1, at which a gradient is made not finite", .unit = "steps", .range = at_least(1)});
  visit("delay_rank", options.delay_rank,
        {.help = "priced device: the rank of the pipeline whose compute lane is late by rank_delay, once in each step",
         .range = at_least(0),
         .when_absent = "none"});
  visit("rank_delay", options.rank_delay,
        {.help = "by how much delay_rank is late, in the middle of its list; not scaled", .range = between(0, 60)});
}

}  // namespace penstock
