// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/describe.hpp"
#include "comm/options.hpp"
#include "config/options.hpp"
#include "cost/shape.hpp"
#include "data/options.hpp"
#include "memory/options.hpp"
#include "model/options.hpp"
#include "model/spec.hpp"
#include "plan/options.hpp"
#include "schedule/options.hpp"

namespace penstock {

/// All that a user can ask of a run, one member a section of the YAML file.
struct Deck {
  ModelOptions model;
  DataOptions data;
  TrainingOptions training;
  ParallelOptions parallel;
  ScheduleOptions schedule;
  MemoryOptions memory;
  DeviceOptions device;
  OutputOptions output;
  TestingOptions testing;
  std::optional<std::string> hardware;  ///< file of the machine that is counted with
  Exposure exposure;
  PlanOptions plan;
  friend bool operator==(const Deck&, const Deck&) = default;
};

template <class Visitor>
void describe(Visitor& visit, Deck& deck) {
  visit("model", deck.model, {.help = "what is trained"});
  visit("data", deck.data, {.help = "on which text"});
  visit("training", deck.training, {.help = "for how long, in which batches, with which optimizer"});
  visit("parallel", deck.parallel, {.help = "over how many ranks"});
  visit("schedule", deck.schedule, {.help = "in which order the ranks work"});
  visit("memory", deck.memory, {.help = "in how much memory"});
  visit("device", deck.device, {.help = "on what"});
  visit("output", deck.output, {.help = "what is written"});
  visit("testing", deck.testing, {.help = "faults put in on purpose, for tests of Penstock itself"});
  visit(
      "hardware", deck.hardware,
      {.help =
           "the file of the machine that simulate and plan count with, and by whose times weight gradients are placed "
           "(doc/hardware.md), relative to the working directory, or else to the deck's folder",
       .when_absent = "unit hardware: F, R, I and W take 1 s and B 2 s for each block of layers and slice; training "
                      "counts FLOPs"});
  visit("plan", deck.plan, {.help = "what `penstock plan` searches"});
  visit("exposure", deck.exposure,
        {.help = "the share of each kind of communication inside an action that nothing hides, for simulate and plan"});
}

/// The deck with every absent value that follows from others filled in (kv_heads, head_size, ffn, vocabulary, gpt2's
/// positions, wsd's decay_steps) and without the preset whose values these are, so that a stored deck means the same to
/// later versions. An absent vocabulary is read from the tokenizer's file, where it is one. @throws Error of
/// make_tokenizer
Deck resolved(Deck deck);

/// The model that the deck asks for; absent values as in `resolved`.
ModelSpec model_spec(const Deck& deck);

/// Ranks of the job: pipeline x data.
std::int32_t world_size(const Deck& deck);
/// Stages over all ranks of one pipeline: pipeline x virtual.
std::int32_t stage_count(const Deck& deck);
/// Micro-batches of one replica and step: global_batch / (micro_batch x data). @pre check_deck found nothing.
std::int32_t micro_batches(const Deck& deck);
/// Tokens of one step over all replicas.
std::int64_t tokens_per_step(const Deck& deck);

}  // namespace penstock
