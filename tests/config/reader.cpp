// SPDX-License-Identifier: Apache-2.0
#include "config/reader.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "config/deck_texts.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// --- what is read ----------------------------------------------------------------------------------------------------

TEST(ReadDeck, TakesDefaultsForAllThatIsLeftOut) {
  const Deck deck = read(smallest_deck);

  Deck expected;
  expected.data.train = {"doc"};
  expected.training.steps = 10;
  EXPECT_EQ(deck, resolved(expected));
}

TEST(ReadDeck, ReadsEveryTypeOfValue) {
  const Deck deck = read(
      "model: {family: gpt2, layers: 3, tie_embeddings: true, norm_epsilon: 1e-6}\n"
      "data:\n"
      "  train:\n"
      "    - doc\n"
      "    - 'my texts'\n"
      "  validation: README.md\n"
      "training:\n"
      "  steps: +10\n"
      "  seed: 18446744073709551615\n"
      "  betas: [0.8, .5]\n"
      "  time_limit: 2 h\n"
      "parallel: {layers_per_stage: [3]}\n"
      "memory: {device: 1.5 GiB}\n"
      "output: {sample: {prompt: \"a\\n\", tokens: 7}}\n"
      "testing: {non_finite_steps: [2, 5]}\n");

  EXPECT_EQ(deck.model.family, Family::gpt2);
  EXPECT_TRUE(deck.model.tie_embeddings);
  EXPECT_EQ(deck.model.norm_epsilon, 1e-6);
  EXPECT_THAT(deck.data.train, ElementsAre("doc", "my texts"));
  EXPECT_THAT(deck.data.validation, ElementsAre("README.md"));
  EXPECT_EQ(deck.training.steps, 10);
  EXPECT_EQ(deck.training.seed, 18446744073709551615U);
  EXPECT_THAT(deck.training.optimizer.betas, ElementsAre(0.8, 0.5));
  EXPECT_EQ(deck.training.time_limit, Seconds{7200});
  EXPECT_EQ(deck.parallel.layers_per_stage, std::vector<std::int32_t>{3});
  EXPECT_EQ(deck.memory.device, Bytes{std::int64_t{3} << 29});
  EXPECT_EQ(deck.output.sample.prompt, "a\n");
  EXPECT_THAT(deck.testing.non_finite_steps, ElementsAre(2, 5));
}

TEST(ReadDeck, ReadsDurationsInAllUnits) {
  const auto limit = [](const std::string& text) {
    return read("data: {train: doc}\ntraining: {steps: 1, time_limit: " + text + "}\n").training.time_limit->value;
  };

  EXPECT_EQ(limit("90"), 90);
  EXPECT_EQ(limit("90 s"), 90);
  EXPECT_EQ(limit("1.5min"), 90);
  EXPECT_EQ(limit("2 h"), 7200);
  EXPECT_EQ(limit("1 d"), 86400);
  EXPECT_EQ(limit("500 ms"), 0.5);
}

TEST(ReadDeck, TakesAnEmptySectionAndAnEmptyOptionalKeyAsLeftOut) {
  const Deck deck = read(smallest_deck + "output:\nschedule: {file: ~, kind: gpipe}\n");

  EXPECT_EQ(deck.output, OutputOptions{});
  EXPECT_EQ(deck.schedule.file, std::nullopt);
  EXPECT_EQ(deck.schedule.kind, ScheduleKind::gpipe);
}

TEST(ReadDeck, TakesTextsThatLookLikeNumbers) {
  EXPECT_EQ(read(smallest_deck + "output: {directory: 2024, sample: {prompt: true}}\n").output.directory, "2024");
}

TEST(ReadDeck, TakesAByteOrderMarkAndCarriageReturns) {
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "data: {train: [doc]}\r\ntraining:\r\n  steps: 10\r\n")
                .training.steps,
            10);
}

TEST(ReadDeck, FillsInWhatFollowsFromOtherKeys) {
  const Deck llama = read(smallest_deck + "model: {hidden: 96, heads: 6}\n");
  const Deck gpt2 = read(smallest_deck + "model: {family: gpt2, hidden: 96, heads: 6}\n");

  EXPECT_EQ(llama.model.kv_heads, 6);
  EXPECT_EQ(llama.model.head_size, 16);
  EXPECT_EQ(llama.model.ffn, 256);  // 8/3 x 96
  EXPECT_EQ(llama.model.vocabulary, 256);
  EXPECT_EQ(llama.model.positions, std::nullopt);
  EXPECT_EQ(gpt2.model.ffn, 384);
  EXPECT_EQ(gpt2.model.positions, 256);
}

TEST(ReadDeck, GivesAFifthOfTheStepsToTheDecayOfWsd) {
  const Deck deck = read("data: {train: doc}\ntraining: {steps: 11, learning_rate: {decay: wsd}}\n");

  EXPECT_EQ(deck.training.optimizer.learning_rate.decay_steps, 3);
}

// --- faults ----------------------------------------------------------------------------------------------------------

TEST(DeckFaults, AreReportedAllAtOnceWithTheirPlaces) {
  const std::string text =
      "modle: {layers: 3}\n"
      "model:\n"
      "  familly: gpt2\n"
      "  layers: x\n"
      "  heads: 8\n"
      "  heads: 4\n"
      "training: {global_batch: 16, micro_batch: 3}\n"
      "parallel: {data: 2}\n";

  const std::string faults = faults_of(text);

  std::vector<std::string> places;
  std::istringstream lines{faults};
  for (std::string line; std::getline(lines, line);)
    places.push_back(line.substr(0, line.find(": ", line.find(": ") + 1)));
  EXPECT_THAT(places, ElementsAre("run.yaml:1:1: modle", "run.yaml:1:1: data.train", "run.yaml:3:3: model.familly",
                                  "run.yaml:4:11: model.layers", "run.yaml:6:3: model.heads",
                                  "run.yaml:7:1: training.steps", "run.yaml:7:26: training.global_batch"));
}

TEST(DeckFaults, NameTheNearestKeyAndTheKeysOfTheSection) {
  EXPECT_EQ(faults_of(smallest_deck + "memory: {devcie: 2 GiB}\n"),
            "run.yaml:3:10: memory.devcie: no such key; did you mean device? The keys of memory are device, host, "
            "recompute_by_stage, recompute, parameters, fetch, resident_stages, offload_activations, optimizer, "
            "rollback");
  EXPECT_THAT(faults_of(smallest_deck + "modle: {}\n"), HasSubstr("modle: no such section; did you mean model?"));
  EXPECT_EQ(faults_of(smallest_deck + "device: {qqqqqqqq: 1}\n"),
            "run.yaml:3:10: device.qqqqqqqq: no such key; the keys of device are kind, threads, time_scale");
}

TEST(DeckFaults, NameTheSectionThatAKeyBelongsTo) {
  EXPECT_THAT(faults_of(smallest_deck + "model: {seed: 3}\n"), HasSubstr("did you mean training.seed?"));
  EXPECT_THAT(faults_of(smallest_deck + "kind: 3\n"), HasSubstr("did you mean schedule.kind?"));
}

struct WrongValue {
  const char* line;
  const char* fault;
};

class RefusedValue : public testing::TestWithParam<WrongValue> {};

TEST_P(RefusedValue, IsNamedWithWhatWasExpected) {
  EXPECT_EQ(faults_of(smallest_deck + GetParam().line + "\n"), std::string{"run.yaml:3:"} + GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(
    OfEachType, RefusedValue,
    testing::Values(
        WrongValue{"model: {layers: 2.5}", "17: model.layers: is '2.5', expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: 0}", "17: model.layers: is '0', expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: 1e3}", "17: model.layers: is '1e3', expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: '3'}",
                   "17: model.layers: is the text '3', expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: [3]}", "17: model.layers: is a list, expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: {a: 3}}",
                   "17: model.layers: is a section, expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: }", "17: model.layers: is nothing, expected a whole number, from 1 to 100000"},
        WrongValue{"model: {layers: 99999999999}",
                   "17: model.layers: is 99999999999, beyond the largest number here, 2147483647"},
        WrongValue{"model: {layers: !!int 3}",
                   "17: model.layers: has the tag 'tag:yaml.org,2002:int'; decks have "
                   "none: leave it out"},
        WrongValue{"model: {tie_embeddings: yes}", "25: model.tie_embeddings: is 'yes', expected true or false"},
        WrongValue{"model: {norm_epsilon: .nan}", "23: model.norm_epsilon: is '.nan', expected a number, more than 0"},
        WrongValue{"model: {norm_epsilon: inf}", "23: model.norm_epsilon: is 'inf', expected a number, more than 0"},
        WrongValue{"model: {norm_epsilon: 0}", "23: model.norm_epsilon: is '0', expected a number, more than 0"},
        WrongValue{"model: {family: lama}",
                   "17: model.family: is 'lama', expected one of gpt2, llama; did you mean llama?"},
        WrongValue{"device: {kind: cuda}", "16: device.kind: cuda is not in this version, which has host, priced"},
        WrongValue{"device: {kind: tpu}", "16: device.kind: is 'tpu', expected one of host, priced"},
        WrongValue{"memory: {device: 2 GIB}",
                   "18: memory.device: is '2 GIB', expected a size such as 2 GiB, 512MB or 4096, at least 1 B"},
        WrongValue{"memory: {device: -1}",
                   "18: memory.device: is '-1', expected a size such as 2 GiB, 512MB or 4096, at least 1 B"},
        WrongValue{"testing: {delays: {longest: 2 h}}",
                   "29: testing.delays.longest: is '2 h', expected a duration such as 90 s, 5 min or 2 h, from 0 s to "
                   "60 s"},
        WrongValue{"testing: {delays: {longest: 3 weeks}}",
                   "29: testing.delays.longest: is '3 weeks', expected a duration such as 90 s, 5 min or 2 h, from 0 s "
                   "to 60 s"},
        WrongValue{"testing: {delays: {seed: -1}}",
                   "26: testing.delays.seed: is '-1', expected a whole number, at least 0"},
        WrongValue{"testing: {non_finite_steps: [3, 0]}",
                   "33: testing.non_finite_steps: is '0', expected a whole number, at least 1"},
        WrongValue{"testing: {non_finite_steps: {a: 1}}",
                   "29: testing.non_finite_steps: is a section, expected a list of whole numbers, at least 1"},
        WrongValue{"testing: [1]",
                   "10: testing: is a list, expected a section: its keys in lines below, indented, or in {}"},
        WrongValue{"schedule: {file: a.csv, kind: gpipe}",
                   "25: schedule.kind: does not stand beside file, which takes its place; leave one of them out"},
        WrongValue{"model: *anchor", "8: is not readable as YAML: the referenced anchor is not defined"}));

TEST(DeckFaults, TellTheLengthOfAListOfFixedLength) {
  EXPECT_EQ(faults_of("data: {train: doc}\ntraining: {steps: 1, betas: [0.9]}\n"),
            "run.yaml:2:29: training.betas: has 1 entries, expected a list of 2 numbers, from 0 to below 1");
  EXPECT_EQ(faults_of("data: {train: doc}\ntraining: {steps: 1, betas: 0.9}\n"),
            "run.yaml:2:29: training.betas: is '0.9', expected a list of 2 numbers, from 0 to below 1");
  EXPECT_EQ(faults_of("data: {train: doc}\ntraining: {steps: 1, betas: [0.9, 1]}\n"),
            "run.yaml:2:35: training.betas: is '1', expected a number, from 0 to below 1");
}

TEST(DeckFaults, SpeakOfWhatALaterVersionHas) {
  EXPECT_EQ(faults_of("data: {train: doc}\ntraining: {steps: 1}\ndevice: {kind: cuda}\n"),
            "run.yaml:3:16: device.kind: cuda is not in this version, which has host, priced");
}

TEST(DeckFaults, SayWhatMustBeGiven) {
  EXPECT_THAT(faults_of("model: {layers: 3}\n"),
              AllOf(HasSubstr("run.yaml:1:1: data.train: must be given: what to train on"),
                    HasSubstr("run.yaml:1:1: training.steps: must be given: optimizer steps")));
}

TEST(DeckFaults, AreNotFollowedByOthersThatTheyCause) {
  // With global_batch unreadable nothing can be said of micro_batch against it; with heads twice nothing of hidden.
  EXPECT_EQ(faults_of("data: {train: doc}\ntraining: {steps: 1, global_batch: x, micro_batch: 3}\n"),
            "run.yaml:2:36: training.global_batch: is 'x', expected a whole number, at least 1");
  EXPECT_EQ(faults_of(smallest_deck + "model: {heads: 7, heads: 8}\n"),
            "run.yaml:3:19: model.heads: stands twice, first in line 3; keep one");
}

TEST(DeckFaults, OfAValueLeaveNoHalfReadValueToTheRules) {
  EXPECT_EQ(faults_of(smallest_deck + "model: {kv_heads: 0, head_size: x}\nparallel: {layers_per_stage: [8, z]}\n"),
            "run.yaml:3:19: model.kv_heads: is '0', expected a whole number, from 1 to 65536\n"
            "run.yaml:3:33: model.head_size: is 'x', expected a whole number, from 1 to 65536\n"
            "run.yaml:4:34: parallel.layers_per_stage: is 'z', expected a whole number, at least 1");
}

TEST(DeckFaults, FollowTheOrderOfTheFileAndEndAfterAHundred) {
  std::string text = smallest_deck + "model:\n";
  for (int i = 0; i < 150; ++i) text += "  key_" + std::to_string(i) + ": 1\n";

  const std::string faults = faults_of(text);

  EXPECT_EQ(std::count(faults.begin(), faults.end(), '\n'), 100);
  EXPECT_THAT(faults, AllOf(StartsWith("run.yaml:4:3: model.key_0:"), HasSubstr("\n... and 50 more faults")));
}

// --- texts that are no decks -----------------------------------------------------------------------------------------

TEST(NoDeck, IsRefusedWhenEmpty) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~\n"}) {
    EXPECT_THAT(faults_of(text), StartsWith("run.yaml:1:1: the deck is empty")) << text;
  }
}

TEST(NoDeck, IsRefusedWhenItIsNoMapping) {
  EXPECT_EQ(faults_of("[model, data]\n"),
            "run.yaml:1:1: is a list, expected sections such as model:, data:, training:");
  EXPECT_EQ(faults_of("hello\n"), "run.yaml:1:1: is 'hello', expected sections such as model:, data:, training:");
}

TEST(NoDeck, IsRefusedWithThePlaceOfTheSyntaxFault) {
  EXPECT_THAT(faults_of("model: {layers: 3\ndata: [\n"), StartsWith("run.yaml:"));
  EXPECT_THAT(faults_of("model:\n\tlayers: 3\n"), StartsWith("run.yaml:2:1: a tab indents this line;"));
  EXPECT_THAT(faults_of("model: \"never closed\n"), HasSubstr("is not readable as YAML:"));
  EXPECT_THAT(faults_of("model: 'never closed"), HasSubstr("is not readable as YAML:"));
}

TEST(NoDeck, IsRefusedWhenItIsNoUtf8) {
  EXPECT_EQ(faults_of("model:\n  layers: \xff\n"),
            "run.yaml:2:11: the byte 0xff is no UTF-8 text; save the file as UTF-8");
  EXPECT_THAT(faults_of(std::string{"m\0o\0d\0", 6}), HasSubstr("run.yaml:1:2: the byte 0x00 is no UTF-8 text"));
}

TEST(NoDeck, IsRefusedWhenItIsTooLarge) {
  EXPECT_EQ(faults_of(std::string((std::size_t{1} << 20) + 1, '#')),
            "run.yaml:1:1: is larger than 1 MiB; a deck is a short text");
}

TEST(NoDeck, IsRefusedWhenItIsTooDeep) {
  EXPECT_THAT(faults_of("model: " + std::string(100000, '[')), HasSubstr("is nested more than 20 deep"));
  EXPECT_THAT(faults_of("model: " + std::string(100000, '{')), HasSubstr("run.yaml:1:"));
  std::string blocks;
  for (int i = 0; i < 600; ++i) blocks += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(faults_of(blocks), HasSubstr("is nested more than 20 deep"));
  std::string dashes;
  for (int i = 0; i < 100000; ++i) dashes += "- ";
  EXPECT_THAT(faults_of(dashes), HasSubstr("run.yaml:1:"));
}

TEST(NoDeck, IsRefusedWhenASectionHasMoreKeysThanAnyDeck) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "k" + std::to_string(i) + ": 1\n";

  EXPECT_EQ(faults_of(text), "run.yaml:1001:1: k1000: is beyond the 1000 keys that a section may have");
}

TEST(NoDeck, IsRefusedWithAliasesMergeKeysAndSecondDocuments) {
  EXPECT_EQ(faults_of("data: {train: &texts [doc], validation: *texts}\ntraining: {steps: 1}\n"),
            "run.yaml:1:41: data.validation: is an alias (*name); decks have none: write the value out");
  EXPECT_THAT(faults_of("x: &x {a: 1}\nmodel:\n  <<: *x\n"), HasSubstr("run.yaml:3:7: model.<<: is an alias"));
  EXPECT_EQ(faults_of(smallest_deck + "---\nmodel: {}\n"),
            "run.yaml:3:1: a second document begins here; a deck is one");
}

TEST(NoDeck, IsRefusedWhenAKeyIsNoWord) {
  EXPECT_THAT(faults_of("? [a, b]\n: 1\n"), HasSubstr("has a list where the name of a key belongs"));
}

TEST(NoDeck, ShowsLongAndUnprintableKeysShortened) {
  const std::string faults = faults_of(smallest_deck + "\"a\\n" + std::string(900, 'x') + "\": 1\n");

  EXPECT_THAT(faults, StartsWith("run.yaml:3:1: a\\x0axxx"));
  EXPECT_LT(faults.size(), 300U);
}

// --- overrides -------------------------------------------------------------------------------------------------------

TEST(Override, TakesThePlaceOfWhatTheDeckSays) {
  const Deck deck = read(smallest_deck, {"training.steps=20", "data.train=[a, b]", "output.sample.prompt=x = y",
                                         "training.learning_rate={peak: 0.5}", "training.steps=30"});

  EXPECT_EQ(deck.training.steps, 30);
  EXPECT_THAT(deck.data.train, ElementsAre("a", "b"));
  EXPECT_EQ(deck.output.sample.prompt, "x = y");
  EXPECT_EQ(deck.training.optimizer.learning_rate.peak, 0.5);
}

TEST(Override, IsNamedInFaults) {
  EXPECT_EQ(faults_of(smallest_deck, {"training.steps=x"}),
            "--set training.steps=x: training.steps: is 'x', expected a whole number, at least 1");
  EXPECT_THAT(faults_of(smallest_deck, {"training.step=3"}),
              StartsWith("--set training.step=3: training.step: no such key; did you mean steps?"));
  EXPECT_THAT(faults_of(smallest_deck, {"trainning.steps=3"}),
              StartsWith("--set trainning.steps=3: trainning: no such section; did you mean training?"));
  EXPECT_EQ(faults_of(smallest_deck, {"training.steps.x=3"}),
            "--set training.steps.x=3: training.steps: is a section, expected a whole number, at least 1");
}

TEST(Override, ThatIsNoAssignmentIsRefused) {
  for (const char* text : {"training.steps", "=3", ".=3", "training.=3", "training..steps=3", ""}) {
    EXPECT_EQ(faults_of(smallest_deck, {text}),
              "--set " + std::string{text} + ": expected KEY=VALUE, such as training.steps=20");
  }
  EXPECT_THAT(faults_of(smallest_deck, {std::string(100000, '.') + "=3"}), HasSubstr("expected KEY=VALUE"));
}

TEST(Override, ThatIsNoYamlIsRefused) {
  EXPECT_THAT(faults_of(smallest_deck, {"data.train=[a"}), StartsWith("--set data.train=[a: is not readable as YAML:"));
}

TEST(Override, GivesARequiredKey) {
  EXPECT_THAT(faults_of("data: {train: doc}\n", {"training.steps=1"}), IsEmpty());
}

TEST(Override, OfAScheduleFileTakesThePlaceOfTheDecksKind) {
  const Deck deck = read(smallest_deck + "schedule: {kind: gpipe}\n", {"schedule.file=a.csv"});

  EXPECT_EQ(deck.schedule.file, "a.csv");
  EXPECT_THAT(faults_of(smallest_deck + "schedule: {file: a.csv}\n", {"schedule.kind=gpipe"}),
              HasSubstr("does not stand beside file"));
  EXPECT_EQ(
      read(smallest_deck + "schedule: {file: a.csv}\n", {"schedule.file=null", "schedule.kind=gpipe"}).schedule.kind,
      ScheduleKind::gpipe);
}

TEST(Override, OfTheKindSetsAsideWhatTheDeckSaysForItsOwnKind) {
  const std::string text = smallest_deck + "schedule: {kind: spipe, forward_virtual: 2, backward_virtual: 6}\n";

  const auto [deck, notes] = parse_noted_deck(text, "run.yaml", {"schedule.kind=1f1b"});

  EXPECT_EQ(deck, read(smallest_deck, {"schedule.kind=1f1b"}));
  EXPECT_THAT(notes,
              ElementsAre("--set schedule.kind=1f1b: schedule.forward_virtual: is 2 in the deck, which 1f1b has no use "
                          "for: it counts as left out",
                          HasSubstr("schedule.backward_virtual: is 6 in the deck")));
}

TEST(Override, OfTheKindLeavesWhatItUsesAndWhatTheCommandLineSays) {
  const std::string text = smallest_deck + "schedule: {kind: svpp, slices: 4, virtual: 2}\nparallel: {pipeline: 2}\n";

  const Deck sliced = read(text, {"schedule.kind=slimpipe"});

  EXPECT_EQ(sliced.schedule.slices, 4);
  EXPECT_EQ(sliced.schedule.virtual_stages, 2);
  EXPECT_THAT(faults_of(text, {"schedule.kind=1f1b", "schedule.slices=2"}), HasSubstr("1f1b cuts no sequences"));
  EXPECT_THAT(faults_of(smallest_deck + "schedule: {kind: 1f1b, slices: 4}\n"), HasSubstr("1f1b cuts no sequences"));
}

TEST(Override, ThatBreaksARuleIsNamedAsThePlace) {
  EXPECT_THAT(
      faults_of(smallest_deck, {"parallel.data=3"}),
      StartsWith("--set parallel.data=3: training.global_batch: global_batch 16 is not divisible by micro_batch 1 "
                 "x data 3 = 3"));
}

// --- files -----------------------------------------------------------------------------------------------------------

TEST(ReadDeckFile, NamesAFileThatCannotBeRead) {
  const auto message = [](const std::string& path) {
    try {
      read_deck(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      return std::string{error.what()};
    }
    return std::string{};
  };

  EXPECT_EQ(message("/no/such/deck.yaml"), "/no/such/deck.yaml: the deck cannot be opened: No such file or directory");
  EXPECT_THAT(message(testing::TempDir()), HasSubstr("the deck cannot be read: Is a directory"));
}

TEST(ReadDeckFile, ReadsAndNamesTheFile) {
  const std::string path = testing::TempDir() + "penstock_deck_" + std::to_string(::getpid()) + ".yaml";
  std::ofstream{path} << smallest_deck;

  EXPECT_EQ(read_deck(path), read(smallest_deck));
  std::ofstream{path} << "a";
  EXPECT_THROW(read_deck(path), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace penstock
