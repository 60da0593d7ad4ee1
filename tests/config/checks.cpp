// SPDX-License-Identifier: Apache-2.0
#include "config/checks.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/deck_texts.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Deck sound_deck() {
  Deck deck;
  deck.data.train = {"doc"};
  deck.data.validation = {"README.md"};
  deck.training.steps = 100;
  deck.training.validate_every = 50;
  return deck;
}

/// "key: reason" for each rule that the deck breaks once `change` has been made to a sound one.
std::vector<std::string> broken_by(const std::function<void(Deck&)>& change) {
  Deck deck = sound_deck();
  change(deck);
  std::vector<std::string> lines;
  for (const auto& rule : check_deck(deck)) lines.push_back(rule.keys.front() + ": " + rule.reason);
  return lines;
}

TEST(CheckDeck, FindsNothingInASoundDeck) {
  EXPECT_THAT(broken_by([](Deck&) {}), IsEmpty());
}

TEST(CheckDeck, PutsTheNumbersIntoTheBatchIdentity) {
  EXPECT_THAT(
      broken_by([](Deck& deck) {
        deck.training.micro_batch = 3;
        deck.parallel.data = 2;
      }),
      ElementsAre("training.global_batch: global_batch 16 is not divisible by micro_batch 3 x data 2 = 6; choose "
                  "global_batch 12 or 18"));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.training.micro_batch = 32; }),
              ElementsAre(HasSubstr("micro_batch 32 x data 1 = 32; choose global_batch 32")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.training.micro_batch = 2'000'000'000;
                deck.parallel.data = 1000;
              }),
              ElementsAre(HasSubstr("micro_batch 2000000000 x data 1000 = 2000000000000")));
}

TEST(CheckDeck, LetsNoInverseDivideByZero) {
  const auto inverse = [](Deck& deck) {
    deck.training.optimizer.clip_mode = ClipMode::speculative;
    deck.memory.rollback = Rollback::inverse;
  };
  EXPECT_THAT(broken_by(inverse), IsEmpty());
  const auto all_wrong = [&](Deck& deck) {
    inverse(deck);
    deck.training.optimizer.betas = {0.9, 0.0};
    deck.training.optimizer.learning_rate.peak = 0.25;
    deck.training.optimizer.weight_decay = 4;
  };
  EXPECT_THAT(broken_by(all_wrong), ElementsAre(HasSubstr("training.betas: are 0.9 and 0; rollback inverse divides"),
                                                HasSubstr("training.weight_decay: weight_decay 4 x peak 0.25 = 1")));
  EXPECT_THAT(broken_by([&](Deck& deck) {
                all_wrong(deck);
                deck.memory.rollback = Rollback::copy;
              }),
              IsEmpty());
}

TEST(CheckDeck, WantsALayerForEachStage) {
  EXPECT_THAT(
      broken_by([](Deck& deck) { deck.parallel.pipeline = 9; }),
      ElementsAre("parallel.pipeline: pipeline 9 x virtual 1 = 9 stages, but the model has 8 layers; each stage "
                  "needs at least one"));
  EXPECT_THAT(
      broken_by([](Deck& deck) {
        deck.model.layers = 10;
        deck.parallel.pipeline = 4;
        deck.schedule.kind = ScheduleKind::interleaved;
        deck.schedule.virtual_stages = 3;
      }),
      ElementsAre("schedule.virtual: pipeline 4 x virtual 3 = 12 stages, but the model has 10 layers; each stage "
                  "needs at least one"));
}

TEST(CheckDeck, AddsUpTheLayersPerStage) {
  EXPECT_THAT(
      broken_by([](Deck& deck) {
        deck.parallel.pipeline = 2;
        deck.parallel.layers_per_stage = {5, 2};
      }),
      ElementsAre("parallel.layers_per_stage: 5 + 2 = 7 layers, but the model has 8; every layer belongs to one "
                  "stage"));
  EXPECT_THAT(
      broken_by([](Deck& deck) {
        deck.parallel.pipeline = 2;
        deck.parallel.layers_per_stage = {8};
      }),
      ElementsAre("parallel.layers_per_stage: has 1 entry; pipeline 2 x virtual 1 = 2 stages: give one for each"));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.parallel.pipeline = 2;
                deck.parallel.layers_per_stage = {7, 1};
              }),
              IsEmpty());
}

TEST(CheckDeck, WantsAModeOfRecomputationForEachStageOfTheBackwardPass) {
  const std::vector two{Recompute::none, Recompute::full};
  EXPECT_THAT(broken_by([&](Deck& deck) {
                deck.parallel.pipeline = 2;
                deck.memory.recompute_by_stage = two;
              }),
              IsEmpty());
  EXPECT_THAT(
      broken_by([&](Deck& deck) {
        deck.parallel.pipeline = 2;
        deck.schedule.kind = ScheduleKind::interleaved;
        deck.schedule.virtual_stages = 2;
        deck.memory.recompute_by_stage = two;
      }),
      ElementsAre("memory.recompute_by_stage: has 2 entries; pipeline 2 x virtual 2 = 4 stages: give one for each"));
  EXPECT_THAT(broken_by([&](Deck& deck) {
                deck.schedule.kind = ScheduleKind::spipe;
                deck.schedule.backward_virtual = 3;
                deck.memory.recompute_by_stage = {Recompute::full, Recompute::full};
              }),
              ElementsAre(HasSubstr("has 2 entries; pipeline 1 x backward_virtual 3 = 3 stages: give one for each")));
  EXPECT_THAT(broken_by([&](Deck& deck) {
                deck.schedule.file = "a.csv";
                deck.memory.recompute_by_stage = two;
              }),
              IsEmpty());
}

TEST(CheckDeck, LetsAScheduleFileSayTheNumberOfStages) {
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.parallel.pipeline = 2;
                deck.parallel.layers_per_stage = {2, 2, 2, 2};
                deck.schedule.file = "a.csv";
              }),
              IsEmpty());
}

TEST(CheckDeck, WantsAScheduleThatHasVirtualStages) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.schedule.virtual_stages = 2; }),
              ElementsAre(HasSubstr(
                  "schedule.virtual: 1f1b has 1 stage a rank, not 2; kinds that take 2: gpipe, interleaved")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.schedule.virtual_stages = 2;
                deck.schedule.kind = ScheduleKind::gpipe;
              }),
              IsEmpty());
}

TEST(CheckDeck, WantsSlicesThatTheScheduleAndTheSequenceHave) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.schedule.slices = 2; }),
              ElementsAre(HasSubstr("schedule.slices: 1f1b cuts no sequences, and 2 slices were asked for")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.schedule.kind = ScheduleKind::slimpipe;
                deck.schedule.slices = 6;
                deck.parallel.pipeline = 4;
              }),
              ElementsAre(HasSubstr("schedule.slices: slimpipe moves slices through the stages in groups of one a "
                                    "rank: 6 slices cannot be dealt evenly to 4 ranks; use 4 or 8")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.schedule.kind = ScheduleKind::svpp;
                deck.schedule.slices = 9;
                deck.training.sequence = 8;
              }),
              ElementsAre("schedule.slices: 9 slices cannot be cut from sequences of 8 tokens"));
}

TEST(CheckDeck, WantsATokenForEachRankThatSharesTheVocabulary) {
  const auto change = [](std::int32_t vocabulary) {
    return [=](Deck& deck) {
      deck.schedule.kind = ScheduleKind::slimpipe;
      deck.schedule.slices = 4;
      deck.schedule.vocabulary_parallel = true;
      deck.parallel.pipeline = 4;
      deck.model.vocabulary = vocabulary;
    };
  };

  EXPECT_THAT(broken_by(change(3)),
              ElementsAre("schedule.vocabulary_parallel: shares a vocabulary of 3 tokens over 4 ranks; each rank needs "
                          "one token at least"));
  EXPECT_THAT(broken_by(change(4)), IsEmpty());
}

TEST(CheckDeck, WantsForwardsFirstThatSvppCanHave) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.schedule.forwards_first = 4; }),
              ElementsAre(HasSubstr("schedule.forwards_first: 1f1b itself says how many forwards come first")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.schedule.kind = ScheduleKind::svpp;
                deck.schedule.slices = 4;
                deck.parallel.pipeline = 4;
                deck.schedule.forwards_first = 3;
              }),
              ElementsAre(HasSubstr("schedule.forwards_first: svpp with 4 ranks, 1 virtual stage and 4 slices takes 4 "
                                    "to 7 forwards before the first backward, not 3")));
}

TEST(CheckDeck, WantsATokenizerThatThereIs) {
  EXPECT_THAT(
      broken_by([](Deck& deck) { deck.data.tokenizer = "byte"; }),
      ElementsAre("data.tokenizer: there is no tokenizer byte (did you mean bytes?); it takes bytes, none, or the "
                  "path of an llm.c tokenizer file (*.bin)"));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.data.tokenizer = "sentencepiece"; }),
              ElementsAre(HasSubstr("there is no tokenizer sentencepiece; it takes bytes")));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.data.tokenizer = "no_such_file.bin"; }), IsEmpty());
}

TEST(CheckDeck, WantsAVocabularyWhereTheTokenizerHasNone) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.data.tokenizer = "none"; }),
              ElementsAre(HasSubstr("model.vocabulary: is left out, and tokenizer none does not say")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.data.tokenizer = "none";
                deck.model.vocabulary = 50257;
              }),
              IsEmpty());
}

TEST(CheckDeck, WantsHeadsThatDivide) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.model.kv_heads = 3; }),
              ElementsAre(HasSubstr("model.kv_heads: heads 8 is not divisible by kv_heads 3")));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.model.hidden = 250; }),
              ElementsAre("model.hidden: hidden 250 is not divisible by heads 8; choose hidden 248 or 256, or give "
                          "head_size"));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.model.hidden = 250;
                deck.model.head_size = 32;
              }),
              IsEmpty());
  EXPECT_THAT(
      broken_by([](Deck& deck) { deck.model.head_size = 31; }),
      ElementsAre("model.head_size: the head size 31 is odd; rotary positions turn pairs of numbers, so it must be "
                  "even"));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.model.heads = 65536;
                deck.model.head_size = 65536;
              }),
              ElementsAre(HasSubstr("heads 65536 x head_size 65536 = 4294967296 is beyond 2147483647")));
}

TEST(CheckDeck, KnowsWhatGpt2Lacks) {
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.model.family = Family::gpt2;
                deck.model.kv_heads = 4;
                deck.model.positions = 128;
              }),
              ElementsAre(HasSubstr("model.kv_heads: 4 differs from heads 8; family gpt2 has as many"),
                          HasSubstr("model.positions: 128 positions, less than sequence 256")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.model.family = Family::gpt2;
                deck.model.head_size = 31;
              }),
              IsEmpty());
}

TEST(CheckDeck, WantsALearningRateThatFits) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.training.optimizer.learning_rate.minimum = 1; }),
              ElementsAre("training.learning_rate.minimum: minimum 1 is above peak 0.0003"));
  EXPECT_THAT(
      broken_by([](Deck& deck) { deck.training.optimizer.learning_rate.decay_steps = 3; }),
      ElementsAre("training.learning_rate.decay_steps: is 3, which needs training.learning_rate.decay: wsd; leave it "
                  "out, or set it to null"));
}

TEST(CheckDeck, WantsALateRankThatIsThere) {
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.device.kind = DeviceKind::priced;
                deck.parallel.pipeline = 2;
                deck.testing.delay_rank = 2;
              }),
              ElementsAre("testing.delay_rank: there is no rank 2 of 2; choose from 0 to 1"));
}

TEST(CheckDeck, WantsAKillThatComes) {
  const auto killed_at = [](const KillOptions& kill, DeviceKind kind = DeviceKind::host) {
    return broken_by([&](Deck& deck) {
      deck.device.kind = kind;
      deck.parallel = {.pipeline = 2};
      deck.training.steps = 5;
      deck.testing.kill = kill;
    });
  };

  EXPECT_THAT(killed_at({5, 1, "B"}), ElementsAre());
  EXPECT_THAT(killed_at({0, 0, "B"}),
              ElementsAre("testing.kill.action: is B, but there is no step; give testing.kill.step"));
  EXPECT_THAT(killed_at({5, 1, ""}), ElementsAre("testing.kill.action: must be given beside a step"));
  EXPECT_THAT(killed_at({6, 1, "B"}), ElementsAre("testing.kill.step: 6 is behind the last of 5 steps"));
  EXPECT_THAT(killed_at({5, 2, "B"}), ElementsAre("testing.kill.rank: there is no rank 2 of 2; choose from 0 to 1"));
  EXPECT_THAT(killed_at({5, 1, "B"}, DeviceKind::priced),
              ElementsAre("testing.kill.step: 5: a run on the priced device has nothing to resume; leave kill out"));
}

TEST(CheckDeck, WantsSomethingToReadWriteAndValidate) {
  EXPECT_THAT(broken_by([](Deck& deck) { deck.data.train.clear(); }),
              ElementsAre("data.train: must be given: what to train on, at least one text file, folder or token file"));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.data.train.clear();
                deck.device.kind = DeviceKind::priced;
              }),
              ElementsAre());
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.data.train = {"doc", ""};
              }),
              ElementsAre("data.train: names an empty path"));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.data.validation = {""}; }),
              ElementsAre("data.validation: names an empty path"));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.output.directory.clear(); }),
              ElementsAre("output.directory: is an empty path"));
  EXPECT_THAT(broken_by([](Deck& deck) { deck.schedule.file = ""; }), ElementsAre("schedule.file: is an empty path"));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.output.sample.prompt.clear();
                deck.output.sample.tokens = 5;
              }),
              ElementsAre(HasSubstr("output.sample.prompt: is empty")));
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.data.validation.clear();
                deck.training.validate_every = 50;
              }),
              ElementsAre(HasSubstr("training.validate_every: every 50 steps, but data.validation is empty")));
}

TEST(CheckDeck, LimitsTheNumberOfRanks) {
  EXPECT_THAT(broken_by([](Deck& deck) {
                deck.model.layers = 65536;
                deck.parallel.pipeline = 65536;
                deck.parallel.data = 16;
              }),
              ElementsAre(HasSubstr("parallel.pipeline: pipeline 65536 x data 16 = 1048576 ranks")));
}

TEST(CheckDeck, IsShownAtTheKeyThatTheDeckGives) {
  EXPECT_EQ(
      faults_of(smallest_deck + "parallel:\n  pipeline: 12\n"),
      "run.yaml:4:13: parallel.pipeline: pipeline 12 x virtual 1 = 12 stages, but the model has 8 layers; each stage "
      "needs at least one");
  // global_batch has its default: the place is that of micro_batch.
  EXPECT_EQ(
      faults_of("data: {train: doc}\ntraining: {steps: 1, micro_batch: 5}\n"),
      "run.yaml:2:35: training.global_batch: global_batch 16 is not divisible by micro_batch 5 x data 1 = 5; choose "
      "global_batch 15 or 20");
}

TEST(NotesOnDeck, TellWhatMaySurprise) {
  Deck deck = sound_deck();
  EXPECT_THAT(notes_on(deck), IsEmpty());

  deck.training.optimizer.learning_rate = {.warmup = 200, .decay = Decay::wsd, .decay_steps = 101};
  std::vector<std::string> notes;
  for (const auto& note : notes_on(deck)) notes.push_back(note.keys.front() + ": " + note.reason);

  EXPECT_THAT(notes, ElementsAre(HasSubstr("warmup: 200 steps, more than training.steps 100: the run ends before"),
                                 HasSubstr("decay_steps: 101 steps, more than training.steps 100")));
}

TEST(ModelSpecOfDeck, FollowsTheDeck) {
  const Deck deck = read(smallest_deck + "model: {family: gpt2, layers: 3, hidden: 64, heads: 4, precision: fp32}\n");

  EXPECT_EQ(model_spec(deck), (ModelSpec{.family = Family::gpt2,
                                         .layers = 3,
                                         .hidden = 64,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_size = 16,
                                         .ffn = 256,
                                         .vocabulary = 256,
                                         .positions = 256,
                                         .tie_embeddings = false,
                                         .norm_epsilon = 1e-5,
                                         .rope_theta = 10000.0,
                                         .precision = Precision::fp32}));
}

TEST(CountsOfDeck, AreProductsOfItsKeys) {
  const Deck deck = read(
      "data: {train: doc}\n"
      "training: {steps: 1, sequence: 32, global_batch: 24, micro_batch: 2}\n"
      "parallel: {pipeline: 2, data: 3}\n"
      "schedule: {kind: interleaved, virtual: 2}\n");

  EXPECT_EQ(world_size(deck), 6);
  EXPECT_EQ(stage_count(deck), 4);
  EXPECT_EQ(micro_batches(deck), 4);
  EXPECT_EQ(tokens_per_step(deck), 768);
}

}  // namespace
}  // namespace penstock
