// SPDX-License-Identifier: Apache-2.0
#include "schedule/vocabulary.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/graph.hpp"
#include "schedule/helpers.hpp"
#include "schedule/semantics.hpp"
#include "schedule/sliced_generators.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Schedule shared(const GeneratorOptions& options, CompletionOptions completion = {}) {
  completion.share_vocabulary = true;
  return complete(slimpipe(options), completion);
}

/// Two ranks with one stage each, one micro-batch of two slices: stages 0 and 1, shares 2 and 3.
Schedule small() {
  return shared({.pipeline = 2, .virtual_stages = 1, .micro_batches = 1, .slices = 2});
}

Action action(Op op, std::int32_t stage, std::int32_t slice = 0) {
  return {op, Stage{stage}, MicroBatch{0}, Slice{slice}};
}

Seconds unit_step(const Schedule& schedule) {
  const ScheduleIndex index{schedule};
  const DependenceGraph graph{index};
  const auto duration = [&](std::int32_t node) { return unit_duration(schedule, graph.action_of(node).action); };
  const auto starts = earliest_starts(graph, duration);
  Seconds end{-1};
  for (std::int32_t node = 0; starts && node < graph.size(); ++node) {
    if (graph.is_node(node)) end = std::max(end, (*starts)[static_cast<std::size_t>(node)] + duration(node));
  }
  return end;
}

template <class Visit>
void for_each_lockstep(const Visit& visit) {
  for (int p = 1; p <= 5; ++p) {
    for (int v = 1; v <= 2; ++v) {
      for (const int groups : {1, 2}) {
        for (const int m : {1, 2, 5}) visit(GeneratorOptions{p, v, m, groups * p});
      }
    }
  }
}

TEST(SharesOfTheVocabulary, DifferByARowAtMostAndCoverAll) {
  EXPECT_EQ(rows_of_share(10, 4, Rank{0}), (VocabularyRows{0, 3}));
  EXPECT_EQ(rows_of_share(10, 4, Rank{1}), (VocabularyRows{3, 3}));
  EXPECT_EQ(rows_of_share(10, 4, Rank{2}), (VocabularyRows{6, 2}));
  EXPECT_EQ(rows_of_share(10, 4, Rank{3}), (VocabularyRows{8, 2}));
  EXPECT_EQ(rows_of_share(4, 4, Rank{3}), (VocabularyRows{3, 1}));
  EXPECT_THROW(rows_of_share(3, 4, Rank{0}), Error);
}

TEST(ASharedVocabulary, IsWorkedOnByAllRanksAtBothEndsOfTheModel) {
  const Schedule schedule = small();
  const auto of = [&](Rank rank) {
    std::string text;
    for (const Action& one : schedule.actions[rank]) {
      if (lane_of(one.op) == Lane::compute) text += to_text(one, 2) + " ";
    }
    return text;
  };

  EXPECT_EQ(of(Rank{0}), "2EF0.0 0F0.0 2EF0.1 0F0.1 2VF0.0 2VF0.1 2VB0.1 2VB0.0 0B0.1 2EB0.1 0B0.0 2EB0.0 ");
  EXPECT_EQ(of(Rank{1}), "3EF0.0 3EF0.1 1F0.0 3VF0.0 1F0.1 3VF0.1 3VB0.1 1B0.1 3VB0.0 1B0.0 3EB0.1 3EB0.0 ");
}

TEST(ASharedVocabulary, GivesValidSchedulesWhateverTheShape) {
  for_each_lockstep([](const GeneratorOptions& options) {
    for (const bool split : {false, true}) {
      for (const bool recompute : {false, true}) {
        CompletionOptions completion{.split_weight_gradients = split, .tied_embeddings = recompute};
        completion.recompute = PerStage<bool>(options.pipeline * options.virtual_stages, recompute);
        completion.steps_wait = split ? StepsWait::for_norm : StepsWait::for_reduction;
        const Schedule schedule = shared(options, completion);

        EXPECT_EQ(texts(validate(schedule)), "") << describe(schedule) << " n=" << options.slices;
      }
    }
  });
}

TEST(ASharedVocabulary, IsValidWithForwardsAlone) {
  for (int p = 1; p <= 4; ++p) {
    for (const int v : {1, 2}) {
      const Schedule schedule = complete(forward_only(dealt(p, v), 5), {.share_vocabulary = true});

      EXPECT_EQ(texts(validate(schedule)), "") << describe(schedule);
      EXPECT_TRUE(schedule.shares_vocabulary);
    }
  }
}

TEST(ASharedVocabulary, MakesNoRankOfALockstepWait) {
  for_each_lockstep([](const GeneratorOptions& options) {
    const Schedule plain = complete(slimpipe(options), {});

    EXPECT_DOUBLE_EQ(unit_step(shared(options)).value, unit_step(plain).value)
        << describe(plain) << " n=" << options.slices;
  });
}

TEST(ASharedVocabulary, IsReadAsItWasWritten) {
  const Schedule schedule = small();

  const Schedule read = read_schedule_csv(write_schedule_csv(schedule), schedule.name);

  EXPECT_TRUE(read.shares_vocabulary);
  EXPECT_EQ(read.shape, schedule.shape);
  EXPECT_EQ(read.actions, schedule.actions);
  EXPECT_EQ(texts(validate(read)), "");
  EXPECT_FALSE(read_schedule_csv("0F0,0B0", "plain").shares_vocabulary);
}

TEST(ASharedVocabulary, IsCompletedByThePassesWhereAFileHasItsComputation) {
  const Schedule read = read_schedule_csv("1EF0,0F0,1VF0,1VB0,0B0,1EB0", "one rank");

  const Schedule whole = complete(read, {});

  EXPECT_EQ(row(whole, Rank{0}),
            "1EF0 0F0 1VF0 1VB0 0B0 0OFFLOAD_G 0REDUCE 1EB0 1OFFLOAD_G 1REDUCE VALIDATE 0STEP 1STEP 0FETCH_F 1FETCH_F");
  EXPECT_EQ(texts(validate(whole)), "");
}

TEST(NeedsOfASharedVocabulary, TieBothEndsOfTheModelToTheShares) {
  const Schedule schedule = small();

  EXPECT_THAT(need_texts(schedule, {Rank{0}, action(Op::embed_forward, 2)}), IsEmpty());
  EXPECT_THAT(need_texts(schedule, {Rank{0}, action(Op::forward, 0)}), ElementsAre("2EF0.0"));
  EXPECT_THAT(need_texts(schedule, {Rank{0}, action(Op::vocabulary_forward, 2)}), ElementsAre("1F0.0"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, action(Op::vocabulary_backward, 3)}), ElementsAre("3VF0.0"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, action(Op::backward, 1, 1)}), ElementsAre("1F0.1", "3VB0.1"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, action(Op::embed_backward, 3)}), ElementsAre("0B0.0"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, {Op::offload_gradients, Stage{3}, MicroBatch{0}, Slice{0}}}),
              UnorderedElementsAre("3VB0.0", "3EB0.0", "3VB0.1", "3EB0.1"));
  EXPECT_THAT(need_texts(schedule, {Rank{0}, {Op::validate, Stage{0}, MicroBatch{0}, Slice{0}}}),
              ElementsAre("0REDUCE", "1REDUCE", "2REDUCE", "3REDUCE"));
}

TEST(NeedsOfASharedVocabulary, TieNoWeightOfTwoStages) {
  const Schedule schedule = shared({.pipeline = 2, .virtual_stages = 1, .micro_batches = 1, .slices = 2},
                                   {.tied_embeddings = true, .steps_wait = StepsWait::for_reduction});

  EXPECT_THAT(need_texts(schedule, {Rank{0}, action(Op::reduce, 0)}), ElementsAre("0OFFLOAD_G"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, action(Op::step, 1)}), ElementsAre("1REDUCE"));
}

TEST(BuffersOfASharedVocabulary, AreTheLogitsOfEachShareAndTheStreamAtBothEnds) {
  const Schedule schedule = small();
  const auto takes_of = [&](Rank rank, const Action& of) { return buffer_texts(takes(schedule, {rank, of})); };
  const auto frees_of = [&](Rank rank, const Action& of) { return buffer_texts(frees(schedule, {rank, of})); };

  EXPECT_THAT(takes_of(Rank{0}, action(Op::embed_forward, 2)), ElementsAre("input 0"));
  EXPECT_THAT(takes_of(Rank{1}, action(Op::embed_forward, 3)), IsEmpty());
  EXPECT_THAT(takes_of(Rank{1}, action(Op::forward, 1)), ElementsAre("activations 1", "output 1"));
  EXPECT_THAT(takes_of(Rank{0}, action(Op::vocabulary_forward, 2)), ElementsAre("logits 2"));
  EXPECT_THAT(takes_of(Rank{0}, action(Op::vocabulary_backward, 2)), IsEmpty());
  EXPECT_THAT(takes_of(Rank{1}, action(Op::vocabulary_backward, 3)), ElementsAre("output_gradient 1"));
  EXPECT_THAT(frees_of(Rank{1}, action(Op::vocabulary_backward, 3)), ElementsAre("logits 3", "output 1"));
  EXPECT_THAT(frees_of(Rank{0}, action(Op::vocabulary_backward, 2)), ElementsAre("logits 2"));
  EXPECT_THAT(frees_of(Rank{0}, action(Op::backward, 0, 1)),
              ElementsAre("activations 0", "output_gradient 0", "input 0"));
  EXPECT_THAT(frees_of(Rank{0}, action(Op::embed_backward, 2)), ElementsAre("input_gradient 0"));
}

TEST(BuffersOfASharedVocabulary, KeepNothingWithForwardsAlone) {
  const Schedule schedule = complete(forward_only(dealt(2, 1), 1), {.share_vocabulary = true});
  const ActionOnRank last{Rank{1}, action(Op::vocabulary_forward, 3)};
  const ActionOnRank first{Rank{0}, action(Op::forward, 0)};

  EXPECT_THAT(takes(schedule, last), IsEmpty());
  EXPECT_THAT(buffer_texts(frees(schedule, last)), ElementsAre("output 1"));
  EXPECT_THAT(buffer_texts(frees(schedule, first)), ElementsAre("input 0"));
}

class MutationsOfASharedVocabulary : public testing::Test {
 protected:
  std::string findings() const { return texts(validate(schedule_)); }
  Schedule schedule_ = small();
};

TEST_F(MutationsOfASharedVocabulary, ARankThatIsMissingIsFound) {
  erase(schedule_, Rank{1}, "3VF0.1");

  EXPECT_THAT(findings(), HasSubstr("V2 rank 1: `3VF0.1` is missing; all ranks share the vocabulary"));
}

TEST_F(MutationsOfASharedVocabulary, AnActionInTwoPlacesIsFound) {
  schedule_.actions[Rank{0}].push_back(action(Op::embed_forward, 2));

  EXPECT_THAT(findings(), AllOf(HasSubstr("V2 rank 0"), HasSubstr("`2EF0.0`: stands in the list already")));
}

TEST_F(MutationsOfASharedVocabulary, RanksThatMeetInAnotherOrderAreFoundAsACycle) {
  move_before(schedule_, Rank{1}, "3EF0.1", "3EF0.0");

  EXPECT_THAT(findings(), AllOf(HasSubstr("V5"), HasSubstr("with those of all ranks"), HasSubstr("cycle of 3 waits")));
}

TEST_F(MutationsOfASharedVocabulary, AMeetingBeforeWhatItNeedsIsFound) {
  move_before(schedule_, Rank{1}, "3VF0.0", "1F0.0");

  EXPECT_THAT(findings(), HasSubstr("`3VF0.0`: needs `1F0.0`, which stands behind it"));
}

TEST_F(MutationsOfASharedVocabulary, GradientsInAnotherOrderAreFound) {
  for (const Rank rank : {Rank{0}, Rank{1}}) {
    const std::string share = rank == Rank{0} ? "2" : "3";
    move_before(schedule_, rank, share + "EB0.0", share + "EB0.1");
  }

  EXPECT_THAT(findings(), AllOf(HasSubstr("V8"), HasSubstr("adds to the weight gradients after")));
}

TEST_F(MutationsOfASharedVocabulary, AShareOnAnotherRankIsFound) {
  const auto place = find(schedule_, Rank{1}, "3EF0.0");
  schedule_.actions[Rank{1}][static_cast<std::size_t>(place)].stage = Stage{2};

  EXPECT_THAT(findings(), HasSubstr("share 2 is on rank 0; list the action there"));
}

TEST_F(MutationsOfASharedVocabulary, AForwardOfAShareIsFound) {
  schedule_.actions[Rank{0}].push_back(action(Op::forward, 2));

  EXPECT_THAT(findings(), HasSubstr("`2F0.0`: expected stages below 2"));
}

TEST_F(MutationsOfASharedVocabulary, AShareWithoutAStepIsFound) {
  erase(schedule_, Rank{1}, "3STEP");

  EXPECT_THAT(findings(), HasSubstr("V7 rank 1: `3STEP` is missing"));
}

TEST_F(MutationsOfASharedVocabulary, AStepBeforeTheLastUseIsFound) {
  move_before(schedule_, Rank{1}, "3FETCH_F", "3EB0.1");

  EXPECT_THAT(findings(), HasSubstr("V9 rank 1"));
}

TEST_F(MutationsOfASharedVocabulary, LogitsThatNobodyFreesAreFound) {
  erase(schedule_, Rank{0}, "2VB0.0");

  EXPECT_THAT(findings(), HasSubstr("takes the logits of stage 2, micro-batch 0, slice 0, which no action frees"));
}

TEST_F(MutationsOfASharedVocabulary, StreamedParametersAreRefusedBesideIt) {
  schedule_.streams_parameters = true;

  EXPECT_THAT(findings(), HasSubstr("ranks share the vocabulary, and parameters are streamed"));
}

}  // namespace
}  // namespace penstock
