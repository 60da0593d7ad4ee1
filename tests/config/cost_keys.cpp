// SPDX-License-Identifier: Apache-2.0
//
// Keys that only the models of cost know so far: presets, mixtures of experts, further kinds of parallelism.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/checks.hpp"
#include "config/deck_texts.hpp"
#include "config/listing.hpp"
#include "model/presets.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ModelPresetKey, GivesThePublishedModel) {
  for (const auto& entry : enum_names(ModelPreset{})) {
    const Deck deck = read(smallest_deck + "model: {preset: " + std::string{entry.name} + "}\n");

    EXPECT_EQ(model_spec(deck), preset_spec(entry.value)) << entry.name;
  }
}

TEST(ModelPresetKey, GivesWayToKeysBesideItInAnyOrder) {
  const Deck deck = read(smallest_deck + "model: {layers: 4, preset: llama2_7b, hidden: 2048}\n");

  EXPECT_EQ(model_spec(deck).layers, 4);
  EXPECT_EQ(model_spec(deck).head_size, 2048 / 32);
  EXPECT_EQ(model_spec(deck).ffn, 11008);
}

TEST(ModelPresetKey, GivesWayToTheCommandLine) {
  const Deck deck = read(smallest_deck, {"model.preset=llama2_13b", "model.vocabulary=128000"});

  EXPECT_EQ(model_spec(deck), preset_spec(ModelPreset::slimpipe_13b));
}

TEST(ModelPresetKey, NamesTheNearestPreset) {
  EXPECT_THAT(faults_of(smallest_deck + "model: {preset: lama2_7b}\n"), HasSubstr("did you mean llama2_7b?"));
}

TEST(ModelPresetKey, IsReadBackFromTheEffectiveDeckWithWhatWasChanged) {
  const Deck deck = read(smallest_deck + "model: {preset: mixtral_8x7b, layers: 4}\n");

  EXPECT_EQ(read(effective_deck(deck)), resolved(deck));
}

TEST(RecomputeKeys, TakeTheModeOfAllStagesOrOfEach) {
  EXPECT_EQ(read(smallest_deck + "memory: {recompute: attention}\n").memory.recompute, Recompute::attention);
  EXPECT_EQ(read(smallest_deck + "memory: {recompute_by_stage: [layers]}\n").memory.recompute_by_stage,
            std::vector{Recompute::layers});
  EXPECT_EQ(read(smallest_deck + "memory: {recompute: full}\n", {"memory.recompute_by_stage=[layers]"})
                .memory.recompute_by_stage,
            std::vector{Recompute::layers});
}

TEST(RecomputeKeys, DoNotStandBesideEachOther) {
  EXPECT_THAT(faults_of(smallest_deck + "memory: {recompute: full, recompute_by_stage: [none]}\n"),
              HasSubstr("does not stand beside recompute_by_stage, which takes its place"));
}

TEST(RecomputeKeys, AreReadBackFromTheEffectiveDeck) {
  const Deck deck = read(smallest_deck + "memory: {recompute_by_stage: [selective]}\n");

  EXPECT_EQ(read(effective_deck(deck)), resolved(deck));
}

TEST(ExpertKeys, HaveToFitEachOther) {
  EXPECT_EQ(faults_of(smallest_deck + "model: {active_experts: 2}\n"),
            "run.yaml:3:25: model.active_experts: 2 active experts of a model that has none; give experts");
  EXPECT_EQ(faults_of(smallest_deck + "model: {experts: 4, active_experts: 5}\n"),
            "run.yaml:3:37: model.active_experts: 5 active experts of 4; choose from 1 to 4");
  EXPECT_THAT(faults_of(smallest_deck + "model: {family: gpt2, experts: 4, active_experts: 2}\n"),
              HasSubstr("model.experts: 4 experts, but family gpt2 has none; use family llama"));
}

std::string refusal_of(const std::string& lines) {
  const Deck deck = read(smallest_deck + lines);
  try {
    refuse_what_cannot_run(deck);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return {};
}

TEST(WhatOnlyTheModelKnows, IsRefusedWithASentenceForEach) {
  EXPECT_EQ(refusal_of("parallel: {tensor: 2}\n"),
            "parallel.tensor: is 2; so far it is for simulate and plan alone: set 1, and use pipeline or data");
  EXPECT_THAT(refusal_of("parallel: {context: 4}\n"), HasSubstr("parallel.context: is 4; so far"));
  EXPECT_THAT(refusal_of("model: {experts: 4, active_experts: 2}\nparallel: {data: 2, expert: 2}\n"),
              AllOf(HasSubstr("parallel.expert: is 2; so far"), HasSubstr("model.experts: is 4; so far")));
}

TEST(WhatOnlyTheModelKnows, IsRefusedAtOnce) {
  const std::string text = refusal_of("parallel: {tensor: 2, context: 2}\n");

  EXPECT_THAT(text, HasSubstr("parallel.tensor"));
  EXPECT_THAT(text, HasSubstr("\nparallel.context"));
}

TEST(WhatOnlyTheModelKnows, IsASharedVocabularyWithParametersFromTheHost) {
  const std::string shared = "schedule: {kind: slimpipe, vocabulary_parallel: true}\n";

  EXPECT_EQ(refusal_of(shared), "");
  EXPECT_THAT(refusal_of(shared + "memory: {parameters: host}\n"),
              HasSubstr("schedule.vocabulary_parallel: is true; so far"));
}

TEST(WhatOnlyTheModelKnows, IsOffloadOfWhatIsFormedAgain) {
  EXPECT_THAT(refusal_of("schedule: {kind: spipe, slices: 2}\nmemory: {offload_activations: 0.5}\n"),
              HasSubstr("memory.offload_activations: is 0.5; so far"));
  EXPECT_EQ(refusal_of("schedule: {kind: svpp, slices: 2}\nmemory: {offload_activations: 0.5}\n"), "");
}

TEST(WhatOnlyTheModelKnows, IsNothingThatRuns) {
  for (const std::string mode : {"none", "attention", "selective", "layers", "full"}) {
    EXPECT_EQ(refusal_of("memory: {recompute: " + mode + "}\n"), "");
  }
  EXPECT_EQ(refusal_of("memory: {recompute_by_stage: [layers]}\n"), "");
}

}  // namespace
}  // namespace penstock
