// SPDX-License-Identifier: Apache-2.0
#include "config/key_needs.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/checks.hpp"
#include "config/deck_texts.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A key with a value beside others, in lines behind the smallest deck.
struct Case {
  std::string_view key;
  std::string_view without;  ///< what the key needs is not there
  std::string_view with;     ///< it is
};

std::vector<std::string> notes_of(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_noted_deck(smallest_deck + std::string{text}, "run.yaml", overrides).notes;
}

TEST(KeysWithoutEffect, AreRefusedWhereTheRunWouldDoSomethingElse) {
  const std::vector<Case> cases{
      {"parallel.expert", "parallel: {expert: 2}",
       "parallel: {expert: 2, data: 2}\nmodel: {experts: 4, active_experts: 2}"},
      {"schedule.early_recompute", "schedule: {early_recompute: true}",
       "schedule: {kind: mobius, early_recompute: true}"},
      {"schedule.checkpoint_messages", "schedule: {kind: mobius, checkpoint_messages: synchronous}",
       "schedule: {kind: spipe, checkpoint_messages: synchronous}"},
      {"schedule.split_backward", "schedule: {split_backward: true, weight_gradients: placed}",
       "schedule: {split_backward: true, weight_gradients: split}"},
      {"schedule.weight_grain", "schedule: {weight_grain: product}",
       "schedule: {weight_grain: product, weight_gradients: placed}"},
      {"schedule.weight_queue", "schedule: {weight_queue: dynamic, weight_gradients: split}",
       "schedule: {weight_queue: dynamic, weight_gradients: placed}"},
      {"schedule.exchange", "schedule: {kind: svpp, slices: 2, exchange: global}",
       "schedule: {kind: slimpipe, slices: 2, exchange: global}"},
      {"schedule.vocabulary_parallel", "schedule: {file: a.csv, vocabulary_parallel: true}",
       "schedule: {kind: slimpipe, vocabulary_parallel: true}"},
      {"memory.parameters", "schedule: {kind: spipe}\nmemory: {parameters: device}",
       "schedule: {kind: 1f1b}\nmemory: {parameters: device}"},
      {"memory.parameters", "schedule: {kind: mobius}\nmemory: {parameters: device}",
       "schedule: {kind: mobius}\nmemory: {parameters: host}"},
      {"memory.recompute", "schedule: {kind: spipe}\nmemory: {recompute: none}",
       "schedule: {kind: spipe}\nmemory: {recompute: full}"},
      {"memory.recompute_by_stage", "schedule: {kind: mobius}\nmemory: {recompute_by_stage: [layers]}",
       "schedule: {kind: mobius}\nmemory: {recompute_by_stage: [full]}"},
      {"memory.offload_activations", "memory: {recompute: full, offload_activations: 0.5}",
       "memory: {recompute: layers, offload_activations: 0.5}"},
      {"memory.offload_activations", "schedule: {kind: mobius}\nmemory: {offload_activations: 0.5}",
       "schedule: {kind: mobius, slices: 2}\nmemory: {offload_activations: 0.5}"},
      {"memory.offload_activations", "memory: {recompute_by_stage: [full], offload_activations: 1}",
       "memory: {recompute_by_stage: [none], offload_activations: 1}"},
      {"testing.delay_rank", "testing: {delay_rank: 0, rank_delay: 1}",
       "testing: {delay_rank: 0, rank_delay: 1}\ndevice: {kind: priced}"}};

  for (const auto& [key, without, with] : cases) {
    EXPECT_THAT(faults_of(smallest_deck + std::string{without}), HasSubstr(std::string{key} + ": is ")) << without;
    EXPECT_EQ(faults_of(smallest_deck + std::string{with}), "") << with;
  }
}

TEST(KeysWithoutEffect, AreNotedWhereTheRunHasNoUseForThem) {
  const std::vector<Case> cases{
      {"model.positions", "model: {positions: 512}", "model: {positions: 512, family: gpt2}"},
      {"model.rope_theta", "model: {rope_theta: 500000, family: gpt2}", "model: {rope_theta: 500000}"},
      {"parallel.neighbours", "parallel: {neighbours: replicas, pipeline: 2}",
       "parallel: {neighbours: replicas, pipeline: 2, data: 2}"},
      {"schedule.virtual", "schedule: {file: a.csv, virtual: 2}", "schedule: {kind: gpipe, virtual: 2}"},
      {"schedule.slices", "schedule: {file: a.csv, slices: 2}", "schedule: {kind: svpp, slices: 2}"},
      {"schedule.forwards_first", "schedule: {file: a.csv, forwards_first: 2}",
       "schedule: {kind: svpp, slices: 2, forwards_first: 2}"},
      {"schedule.forward_virtual", "schedule: {file: a.csv, forward_virtual: 2}",
       "schedule: {kind: spipe, forward_virtual: 2}"},
      {"schedule.backward_virtual", "schedule: {file: a.csv, backward_virtual: 2}",
       "schedule: {kind: spipe, backward_virtual: 2}"},
      {"schedule.forward_stages", "schedule: {file: a.csv, forward_stages: 1}",
       "schedule: {kind: spipe, forward_stages: 1}"},
      {"schedule.backward_stages", "schedule: {file: a.csv, backward_stages: 3}",
       "schedule: {kind: spipe, backward_stages: 3}"},
      {"schedule.cutting", "schedule: {cutting: balanced}", "schedule: {kind: svpp, slices: 2, cutting: balanced}"},
      {"schedule.split_backward", "schedule: {kind: zb_h1, split_backward: true}",
       "schedule: {kind: gpipe, split_backward: true}"},
      {"schedule.weight_gradients", "schedule: {kind: v_min, virtual: 2, weight_gradients: split}",
       "schedule: {kind: dualpipe_v, virtual: 2, weight_gradients: split}"},
      {"schedule.exchange_grain", "schedule: {kind: slimpipe, exchange_grain: half}",
       "schedule: {kind: slimpipe, exchange: pairwise, exchange_grain: half}"},
      {"memory.fetch", "memory: {fetch: get}", "memory: {fetch: get, parameters: host}"},
      {"memory.resident_stages", "memory: {resident_stages: 1}",
       "memory: {resident_stages: 1}\nschedule: {kind: mobius}"},
      {"memory.rollback", "memory: {rollback: inverse}", ""},
      {"device.threads", "device: {kind: priced, threads: 2}", "device: {threads: 2}"},
      {"device.time_scale", "device: {time_scale: 0.5}", "device: {kind: priced, time_scale: 0.5}"},
      {"output.trace_steps", "output: {trace_steps: 9}", "output: {trace: true, trace_steps: 9}"},
      {"output.sample.prompt", "output: {sample: {prompt: Once}}", "output: {sample: {prompt: Once, tokens: 5}}"},
      {"output.sample.temperature", "output: {sample: {temperature: 0}}",
       "output: {sample: {temperature: 0, tokens: 5}}"},
      {"testing.delays.seed", "testing: {delays: {seed: 3}}", "testing: {delays: {seed: 3, longest: 0.001}}"},
      {"testing.non_finite_steps", "testing: {non_finite_steps: [2]}\ndevice: {kind: priced}",
       "testing: {non_finite_steps: [2]}"},
      {"testing.kill.rank", "testing: {kill: {rank: 1}}\nparallel: {pipeline: 2}",
       "testing: {kill: {rank: 1, step: 2, action: 1B0}}\nparallel: {pipeline: 2}"},
      {"testing.delay_rank", "testing: {delay_rank: 0}\ndevice: {kind: priced}",
       "testing: {delay_rank: 0, rank_delay: 1}\ndevice: {kind: priced}"},
      {"testing.rank_delay", "testing: {rank_delay: 1}\ndevice: {kind: priced}",
       "testing: {delay_rank: 0, rank_delay: 1}\ndevice: {kind: priced}"}};

  for (const auto& [key, without, with] : cases) {
    const auto phrase = HasSubstr(std::string{key} + ": is ");
    EXPECT_THAT(notes_of(without), ElementsAre(AllOf(phrase, HasSubstr("which has no effect without")))) << without;
    EXPECT_THAT(notes_of(with), IsEmpty()) << with;
  }
}

/// Keys of `training`, which stands in the smallest deck.
TEST(KeysWithoutEffect, AreThoseOfStepsThatAreNotTaken) {
  const auto notes = [](std::string_view keys) {
    return parse_noted_deck(fmt::format("data: {{train: doc, validation: src}}\ntraining: {{steps: 9, {}}}\n", keys),
                            "run.yaml")
        .notes;
  };
  const auto is_idle = [](std::string_view key) { return HasSubstr(fmt::format("{}: is ", key)); };

  EXPECT_THAT(notes("validate_every: 3, validation_batches: 2"), IsEmpty());
  EXPECT_THAT(notes("validation_batches: 2"),
              ElementsAre(is_idle("data.validation"), is_idle("training.validation_batches")));
  EXPECT_THAT(notes("validate_every: 3, clip: 0, clip_mode: speculative"), ElementsAre(is_idle("training.clip_mode")));
  EXPECT_THAT(notes("validate_every: 3, clip: 0, clip_mode: speculative, non_finite: skip"), IsEmpty());
  EXPECT_THAT(notes("validate_every: 3, learning_rate: {minimum: 0.0001, decay: constant}"),
              ElementsAre(is_idle("training.learning_rate.minimum")));
  EXPECT_THAT(notes("validate_every: 3, learning_rate: {minimum: 0.0001, decay: linear}"), IsEmpty());
}

TEST(KeysWithoutEffect, AreShownWhereTheyStand) {
  EXPECT_THAT(notes_of("memory:\n  fetch: get\n"),
              ElementsAre(StartsWith("run.yaml:4:10: memory.fetch: is get, which has no effect without parameters")));
  EXPECT_EQ(faults_of(smallest_deck + "schedule:\n  weight_grain: product\n"),
            "run.yaml:4:17: schedule.weight_grain: is product, which needs schedule.weight_gradients: placed; leave it "
            "out");
}

TEST(KeysWithoutEffect, AreShownAtTheOverrideThatTookTheirNeedAway) {
  const std::string text = smallest_deck + "schedule: {weight_grain: product, weight_gradients: placed}\n";

  EXPECT_THAT(faults_of(text, {"schedule.weight_gradients=whole"}),
              StartsWith("--set schedule.weight_gradients=whole: schedule.weight_grain: is product"));
}

TEST(KeysWithoutEffect, AreTakenWithTheValueThatTheyHaveAnyway) {
  const std::string text =
      "schedule: {weight_grain: whole, weight_queue: static, forward_virtual: 1, early_recompute: false}\n"
      "memory: {resident_stages: 2, rollback: copy, fetch: message, recompute: none, parameters: device}\n"
      "output: {trace_steps: 3}\n";

  EXPECT_THAT(notes_of(text), IsEmpty());
}

TEST(KeysWithoutEffect, MayWaitForAnotherKindInASearch) {
  Deck deck = read(smallest_deck);
  deck.schedule.weight_grain = WeightGrain::product;
  deck.schedule.early_recompute = true;

  EXPECT_THAT(check_deck(deck, DeckUse::search), IsEmpty());
  EXPECT_EQ(check_deck(deck, DeckUse::model).size(), 2U);
}

TEST(StagesOfAPass, AreCountedOverAllRanksOrForEach) {
  const std::string both = smallest_deck + "schedule: {kind: spipe, forward_virtual: 2, forward_stages: 5}\n";
  const std::string backward = smallest_deck + "schedule: {kind: spipe, backward_virtual: 2, backward_stages: 5}\n";

  EXPECT_THAT(faults_of(both), HasSubstr("schedule.forward_virtual: does not stand beside forward_stages"));
  EXPECT_THAT(faults_of(backward), HasSubstr("schedule.backward_virtual: does not stand beside backward_stages"));
  EXPECT_THAT(faults_of(smallest_deck + "schedule: {forward_stages: 1}\n"),
              HasSubstr("schedule.forward_stages: 1f1b has one partition of the layers"));
}

}  // namespace
}  // namespace penstock
