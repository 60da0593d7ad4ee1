// SPDX-License-Identifier: Apache-2.0
#include "schedule/validator.hpp"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/helpers.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Rank 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 and host actions; rank 1: 1RECV_F0 1F0 1RECV_F1 1B0 ...
Schedule base(const CompletionOptions& options = {}) {
  return complete(one_f_one_b({.pipeline = 2, .virtual_stages = 1, .micro_batches = 2}), options);
}

Schedule split() {
  return base({.split_weight_gradients = true});
}

std::set<Rule> rules_of(const std::vector<Finding>& findings) {
  std::set<Rule> rules;
  for (const Finding& finding : findings) rules.insert(finding.rule);
  return rules;
}

void append(Schedule& schedule, Rank rank, const Action& action) {
  schedule.actions[rank].push_back(action);
}

TEST(Validate, FindsNothingInACompleteSchedule) {
  EXPECT_THAT(validate(base()), IsEmpty());
  EXPECT_THAT(validate(split()), IsEmpty());
}

TEST(Validate, WritesRuleRankActionAndReason) {
  Schedule schedule = base();
  move_before(schedule, Rank{1}, "1RECV_F1", "1RECV_F0");

  const auto findings = validate(schedule);

  ASSERT_THAT(findings, Not(IsEmpty()));
  EXPECT_EQ(findings[0].text,
            "V3 rank 1, action 1 `1RECV_F1`: rank 0 sends `0SEND_F0` here first (action 2); receive in the order "
            "of sends");
  EXPECT_EQ(findings[0].position, 0);
}

// --- V1 placement ---

TEST(Validate, FindsIdsBeyondTheShape) {
  Schedule schedule = base();
  append(schedule, Rank{0}, {Op::forward, Stage{0}, MicroBatch{2}, Slice{0}});
  append(schedule, Rank{0}, {Op::forward, Stage{0}, MicroBatch{0}, Slice{1}});
  append(schedule, Rank{0}, {Op::send_forward, Stage{-1}, MicroBatch{0}, Slice{0}});
  append(schedule, Rank{1}, {Op::offload_gradients, Stage{9}, MicroBatch{0}, Slice{0}});

  const auto findings = validate(schedule);

  EXPECT_EQ(rules_of(findings), std::set<Rule>{Rule::placement});
  EXPECT_EQ(findings.size(), 4U) << texts(findings);
}

TEST(Validate, FindsAnActionOnAnotherRank) {
  Schedule schedule = base();
  append(schedule, Rank{1}, erase(schedule, Rank{0}, "0F1"));

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::placement, 1, "`0F1`: stage 0 is on rank 0")));
}

TEST(Validate, StopsAtTablesThatDisagree) {
  const auto text_after = [](const std::function<void(Schedule&)>& damage) {
    Schedule schedule = base();
    damage(schedule);
    return texts(validate(schedule));
  };

  EXPECT_THAT(text_after([](Schedule& s) { s.shape.ranks = 3; }), HasSubstr("lists for 2 ranks; the shape has 3"));
  EXPECT_THAT(text_after([](Schedule& s) { s.shape.slices = 0; }), HasSubstr("at least 1 of each"));
  EXPECT_THAT(text_after([](Schedule& s) { s.shape.stages = 3; }), HasSubstr("2 stages are placed"));
  EXPECT_THAT(text_after([](Schedule& s) { s.rank_of[Stage{1}] = Rank{2}; }), HasSubstr("stage 1 is placed on rank 2"));
  EXPECT_THAT(text_after([](Schedule& s) { s.recompute = PerStage<bool>(1); }), HasSubstr("recompute is given for 1"));
}

// --- V2 coverage ---

TEST(Validate, FindsADroppedComputeAction) {
  for (const auto& [rank, text] :
       {std::pair{0, "0F1"}, std::pair{1, "1F0"}, std::pair{0, "0B0"}, std::pair{1, "1B1"}}) {
    Schedule schedule = base();
    erase(schedule, Rank{rank}, text);

    EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::coverage, rank, fmt::format("`{}` is missing", text))));
  }
}

TEST(Validate, FindsADuplicatedComputeAction) {
  Schedule schedule = base();
  append(schedule, Rank{0}, {Op::forward, Stage{0}, MicroBatch{1}, Slice{0}});

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::coverage, 0, "stands in the list already, as action 3")));
}

TEST(Validate, FindsHalfOfASplitBackward) {
  Schedule without_input = split();
  erase(without_input, Rank{0}, "0I1");
  Schedule without_weight = split();
  erase(without_weight, Rank{0}, "0W1");

  EXPECT_THAT(validate(without_input), Contains(a_finding(Rule::coverage, 0, "`0I1` is missing")));
  EXPECT_THAT(validate(without_weight), Contains(a_finding(Rule::coverage, 0, "`0W1` is missing")));
}

TEST(Validate, FindsAWholeBackwardBesideASplitOne) {
  Schedule schedule = split();
  append(schedule, Rank{0}, {Op::backward, Stage{0}, MicroBatch{1}, Slice{0}});

  const auto findings = validate(schedule);

  EXPECT_THAT(findings, Contains(a_finding(Rule::coverage, 0, "`0I1`: the list has the whole B too")));
  EXPECT_THAT(findings, Contains(a_finding(Rule::coverage, 0, "`0W1`: the list has the whole B too")));
}

TEST(Validate, FindsRecomputationsThatLackOrAreTooMany) {
  Schedule lacking = base({.recompute = PerStage<bool>(2, true)});
  erase(lacking, Rank{1}, "1R0");
  Schedule surplus = base();
  surplus.actions[Rank{1}].insert(surplus.actions[Rank{1}].begin() + find(surplus, Rank{1}, "1B0"),
                                  {Op::recompute, Stage{1}, MicroBatch{0}, Slice{0}});

  EXPECT_THAT(validate(lacking), Contains(a_finding(Rule::coverage, 1, "`1R0` is missing")));
  EXPECT_THAT(validate(surplus), Contains(a_finding(Rule::coverage, 1, "`1R0`: the stage keeps its activations")));
}

TEST(Validate, FindsABackwardInAForwardOnlySchedule) {
  Schedule schedule = complete(forward_only(dealt(1, 1), 1), {});
  append(schedule, Rank{0}, {Op::backward, Stage{0}, MicroBatch{0}, Slice{0}});
  append(schedule, Rank{0}, {Op::step, Stage{0}, MicroBatch{0}, Slice{0}});

  const auto findings = validate(schedule);

  EXPECT_THAT(findings, Contains(a_finding(Rule::coverage, 0, "`0B0`: the schedule is forward-only")));
  EXPECT_THAT(findings, Contains(a_finding(Rule::host, 0, "`0STEP`: the schedule is forward-only")));
}

// --- V3 channels ---

TEST(Validate, FindsADroppedReceive) {
  Schedule schedule = base();
  erase(schedule, Rank{1}, "1RECV_F0");

  const auto findings = validate(schedule);

  EXPECT_THAT(findings, Contains(a_finding(Rule::channel_order, 0, "`0SEND_F0`: rank 1 has no `1RECV_F0`")));
  EXPECT_THAT(findings,
              Contains(a_finding(Rule::need, 1, "`1F0`: needs `1RECV_F0`, which is not in the list of rank 1")));
}

TEST(Validate, FindsADroppedSend) {
  Schedule schedule = base();
  erase(schedule, Rank{1}, "1SEND_B1");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::channel_order, 0, "`0RECV_B1`: rank 1 has no `1SEND_B1`")));
}

TEST(Validate, FindsADuplicatedMessage) {
  Schedule schedule = base();
  append(schedule, Rank{1}, {Op::receive_forward, Stage{1}, MicroBatch{1}, Slice{0}});

  EXPECT_THAT(validate(schedule),
              Contains(a_finding(Rule::channel_order, 1, "`1RECV_F1`: stands in the list already")));
}

TEST(Validate, FindsSwappedReceives) {
  Schedule schedule = base();
  move_before(schedule, Rank{0}, "0RECV_B1", "0RECV_B0");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::channel_order, 0, "rank 1 sends `1SEND_B0` here first")));
}

TEST(Validate, FindsMessagesThatLeadNowhere) {
  Schedule schedule = base();
  append(schedule, Rank{1}, {Op::send_forward, Stage{1}, MicroBatch{0}, Slice{0}});
  append(schedule, Rank{0}, {Op::receive_forward, Stage{0}, MicroBatch{0}, Slice{0}});
  Schedule one_rank = complete(gpipe({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1}), {});
  append(one_rank, Rank{0}, {Op::send_forward, Stage{0}, MicroBatch{0}, Slice{0}});

  const auto findings = validate(schedule);

  EXPECT_THAT(findings, Contains(a_finding(Rule::channel_order, 1, "no stage to send to; stages are 0 to 1")));
  EXPECT_THAT(findings, Contains(a_finding(Rule::channel_order, 0, "no stage to receive from")));
  EXPECT_THAT(validate(one_rank), Contains(a_finding(Rule::channel_order, 0, "stages 0 and 1 are both on rank 0")));
}

// --- V4 needs ---

TEST(Validate, FindsANeedThatStandsLater) {
  Schedule schedule = base();
  move_before(schedule, Rank{1}, "1F0", "1RECV_F0");

  EXPECT_THAT(validate(schedule),
              ElementsAre(a_finding(Rule::need, 1, "`1F0`: needs `1RECV_F0`, which stands behind it, as action 2"),
                          a_finding(Rule::buffer, 1, "uses the input of stage 1, micro-batch 0")));
}

TEST(Validate, FindsASendBeforeItsProducer) {
  Schedule schedule = base();
  move_before(schedule, Rank{0}, "0SEND_F1", "0F1");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::need, 0, "`0SEND_F1`: needs `0F1`")));
}

TEST(Validate, FindsASliceBeforeTheOneThatItNeeds) {
  const Schedule schedule = complete(read_schedule_csv("0F0.1,0F0.0,0B0.1,0B0.0", "slices"), {});

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::need, 0, "`0F0.1`: needs `0F0.0`")));
}

TEST(Validate, FindsAWeightGradientThatFreesKeysAndValuesTooEarly) {
  const auto lists = "0F0.0,0F0.1,0I0.1,0I0.0,0W0.1,0W0.0,0F1.0,0F1.1,0I1.1,0W1.0,0I1.0,0W1.1";
  const Schedule schedule = complete(read_schedule_csv(lists, "slices"), {});

  EXPECT_THAT(validate(schedule),
              Contains(a_finding(Rule::buffer, 0, "uses the activations of stage 0, micro-batch 1, slice 0")));
}

// --- V5 cycles ---

TEST(Validate, LeavesACycleWithinOneListToTheNeedThatStandsBehind) {
  Schedule schedule = base();
  move_before(schedule, Rank{0}, "0B0", "0F0");

  const auto findings = validate(schedule);

  EXPECT_THAT(findings[0].text, HasSubstr("V4 rank 0, action 1 `0B0`: needs `0F0`, which stands behind it"));
  EXPECT_EQ(rules_of(findings).count(Rule::cycle), 0U) << texts(findings);
}

TEST(Validate, ShowsACycleOverTwoRanks) {
  // Rank 0 wants the gradient of micro-batch 0 before it sends 1; rank 1 wants 1 first.
  const Schedule schedule = complete(read_schedule_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", "stuck"), {});

  const auto findings = validate(schedule);

  ASSERT_EQ(findings.size(), 1U) << texts(findings);
  EXPECT_THAT(findings[0].text,
              AllOf(HasSubstr("a shortest cycle of 7 waits"),
                    HasSubstr("rank 1's `1F0` (action 4) stands on its compute lane behind rank 1's `1F1`"),
                    HasSubstr("rank 0's `0SEND_F1` (action 6) with rank 1's `1RECV_F1` needs rank 0's `0F1`")))
      << texts(findings);
}

TEST(Validate, FindsACycleThroughMemory) {
  const Schedule schedule = base();
  const auto edge = [&](const std::string& before, const std::string& after) {
    return MemoryEdge{Rank{1}, static_cast<std::int32_t>(find(schedule, Rank{1}, before)),
                      static_cast<std::int32_t>(find(schedule, Rank{1}, after))};
  };

  EXPECT_THAT(validate(schedule, {edge("1B0", "1F1")}), IsEmpty());
  EXPECT_THAT(validate(schedule, {edge("1B0", "1RECV_F0")}),
              ElementsAre(a_finding(Rule::cycle, 0, "takes memory that is freed by rank 1's `1B0`")));
}

// --- V6 buffers ---

TEST(Validate, FindsABufferThatIsNeverFreed) {
  Schedule schedule = base();
  erase(schedule, Rank{0}, "0SEND_F1");

  EXPECT_THAT(
      validate(schedule),
      Contains(a_finding(Rule::buffer, 0, "`0F1`: takes the output of stage 0, micro-batch 1, which no action frees")));
}

TEST(Validate, FindsABufferThatIsFreedBeforeItsUse) {
  Schedule schedule = split();
  move_before(schedule, Rank{0}, "0W0", "0I0");

  EXPECT_THAT(
      validate(schedule),
      Contains(a_finding(Rule::buffer, 0, "`0I0`: uses the activations of stage 0, micro-batch 0, which `0W0`")));
}

TEST(Validate, FindsABufferThatIsTakenTwice) {
  Schedule schedule = base();
  append(schedule, Rank{0}, {Op::receive_backward, Stage{0}, MicroBatch{0}, Slice{0}});
  append(schedule, Rank{0}, {Op::receive_backward, Stage{0}, MicroBatch{0}, Slice{0}});

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::buffer, 0, "and nothing has freed")));
}

// --- V7 host ---

TEST(Validate, FindsEveryDroppedHostAction) {
  for (const char* text : {"0OFFLOAD_G", "0REDUCE", "0STEP", "0FETCH_F", "VALIDATE"}) {
    Schedule schedule = base();
    erase(schedule, Rank{0}, text);

    EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::host, 0, fmt::format("`{}` is missing", text))));
  }
}

TEST(Validate, FindsADuplicatedStep) {
  Schedule schedule = base();
  append(schedule, Rank{1}, {Op::step, Stage{1}, MicroBatch{0}, Slice{0}});

  EXPECT_THAT(validate(schedule), ElementsAre(a_finding(Rule::host, 1, "`1STEP`: stands in the list already")));
}

TEST(Validate, FindsHostActionsOutOfOrder) {
  for (const auto& [text, before] : {std::pair{"0REDUCE", "0OFFLOAD_G"}, std::pair{"0OFFLOAD_G", "0B1"},
                                     std::pair{"0STEP", "0REDUCE"}, std::pair{"0FETCH_F", "0STEP"}}) {
    Schedule schedule = base({.steps_wait = StepsWait::for_reduction});
    move_before(schedule, Rank{0}, text, before);

    EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::host, 0, "which stands behind it"))) << text;
  }
}

TEST(Validate, FindsATiedStepBeforeTheFirstStages) {
  Schedule schedule =
      complete(gpipe({.pipeline = 1, .virtual_stages = 2, .micro_batches = 1}), {.tied_embeddings = true});
  move_before(schedule, Rank{0}, "1STEP", "0STEP");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::host, 0, "`1STEP`: needs `0STEP`, which stands behind it")));
}

TEST(Validate, FindsStepsThatWaitForTheNormBesideStepsThatDoNot) {
  Schedule schedule = base({.steps_wait = StepsWait::for_norm});
  move_before(schedule, Rank{1}, "1STEP", "VALIDATE");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::host, 1, "`1STEP`: stands before VALIDATE")));
}

TEST(Validate, FindsAnUndoThatIsMissingWhereTheNormMatters) {
  Schedule schedule = base({.steps_wait = StepsWait::speculative});
  ASSERT_THAT(validate(schedule), IsEmpty());
  erase(schedule, Rank{1}, "1UNDO");

  EXPECT_THAT(validate(schedule), ElementsAre(a_finding(Rule::host, 1, "`1UNDO` is missing; `1STEP` stands before")));
  erase(schedule, Rank{0}, "0UNDO");
  EXPECT_EQ(validate(schedule).size(), 2U);
  schedule.needs_norm = false;
  EXPECT_THAT(validate(schedule), IsEmpty());
}

TEST(Validate, FindsAnUndoWithoutItsStep) {
  Schedule schedule = base({.steps_wait = StepsWait::speculative});
  erase(schedule, Rank{1}, "1STEP");

  EXPECT_THAT(validate(schedule),
              Contains(a_finding(Rule::host, 1, "`1UNDO`: needs `1STEP`, which is not in the list")));
}

TEST(Validate, FindsTwoStepsOfAStageThatIsUndoneOnce) {
  Schedule schedule = base({.steps_wait = StepsWait::speculative});
  append(schedule, Rank{1}, {Op::step, Stage{1}, MicroBatch{0}, Slice{0}});

  EXPECT_THAT(validate(schedule), ElementsAre(a_finding(Rule::host, 1, "`1STEP`: stands in the list already")));
}

TEST(Validate, FindsAnUndoOfAStepThatWaits) {
  Schedule schedule = base({.steps_wait = StepsWait::for_norm});
  append(schedule, Rank{1}, {Op::undo, Stage{1}, MicroBatch{0}, Slice{0}});

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::host, 1, "`1UNDO`: the stage's STEP waits for VALIDATE")));
}

TEST(Validate, FindsAnUndoAndAFetchOutOfOrder) {
  for (const auto& [text, before] : {std::pair{"0UNDO", "VALIDATE"}, std::pair{"0FETCH_F", "0UNDO"}}) {
    Schedule schedule = base({.steps_wait = StepsWait::speculative});
    move_before(schedule, Rank{0}, text, before);

    EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::host, 0, "which stands behind it"))) << text;
  }
}

TEST(Validate, WantsAStepBehindTheNormThatItNeedsAndNoUndoWhereNoneIsListed) {
  Schedule schedule = base({.steps_wait = StepsWait::for_norm});
  for (const std::int32_t rank : {0, 1}) {
    move_before(schedule, Rank{rank}, fmt::format("{}STEP", rank), "VALIDATE");
  }

  EXPECT_THAT(validate(schedule), ElementsAre(a_finding(Rule::host, 0, "`0STEP`: stands before VALIDATE"),
                                              a_finding(Rule::host, 1, "`1STEP`: stands before VALIDATE")));
}

TEST(Validate, TellsAStepBeforeItsReductionOnce) {
  Schedule schedule = base({.steps_wait = StepsWait::for_reduction});
  move_before(schedule, Rank{0}, "0STEP", "0REDUCE");

  schedule.needs_norm = false;

  EXPECT_THAT(validate(schedule), ElementsAre(a_finding(Rule::host, 0, "`0STEP`: needs `0REDUCE`, which stands")));
}

// --- V8 accumulation order ---

TEST(Validate, FindsMicroBatchesOutOfOrder) {
  const Schedule schedule = complete(read_schedule_csv("0F0,0F1,0B1,0B0", "reversed"), {});

  EXPECT_THAT(validate(schedule),
              ElementsAre(a_finding(Rule::accumulation_order, 0, "`0B0`: adds to the weight gradients after `0B1`")));
}

TEST(Validate, FindsWeightGradientsOutOfOrder) {
  const Schedule weights = complete(read_schedule_csv("0F0,0F1,0I0,0I1,0W1,0W0", "w"), {});
  const Schedule inputs = complete(read_schedule_csv("0F0,0F1,0I1,0I0,0W0,0W1", "i"), {});
  const Schedule mixed = complete(read_schedule_csv("0F0,0F1,0B1,0I0,0W0", "mixed"), {});

  EXPECT_THAT(validate(weights), ElementsAre(a_finding(Rule::accumulation_order, 0, "`0W0`")));
  EXPECT_THAT(validate(inputs), ElementsAre(a_finding(Rule::accumulation_order, 0, "`0I0`")));
  EXPECT_THAT(validate(mixed), ElementsAre(a_finding(Rule::accumulation_order, 0, "`0I0`"),
                                           a_finding(Rule::accumulation_order, 0, "`0W0`")));
}

TEST(Validate, WantsSlicesDescendingInW) {
  const Schedule good = complete(read_schedule_csv("0F0.0,0F0.1,0I0.1,0I0.0,0W0.1,0W0.0", "good"), {});
  const Schedule bad = complete(read_schedule_csv("0F0.0,0F0.1,0I0.1,0I0.0,0W0.0,0W0.1", "bad"), {});

  EXPECT_THAT(validate(good), IsEmpty());
  EXPECT_THAT(validate(bad), ElementsAre(a_finding(Rule::accumulation_order, 0, "`0W0.1`")));
}

// --- V9 parameter versions ---

TEST(Validate, FindsAFetchBeforeTheLastUse) {
  Schedule schedule = base();
  move_before(schedule, Rank{0}, "0FETCH_F", "0B1");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::parameter_version, 0, "`0FETCH_F`: `0B1`")));
}

TEST(Validate, FindsAStepBeforeTheLastUse) {
  Schedule schedule = base();
  move_before(schedule, Rank{0}, "0STEP", "0B1");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::parameter_version, 0, "`0STEP`: `0B1`")));
}

// --- all rules ---

TEST(Validate, FindsEveryActionThatIsDropped) {
  for (const Schedule& whole : {base(), split(), base({.recompute = PerStage<bool>(2, true), .tied_embeddings = true}),
                                complete(interleaved({.pipeline = 2, .virtual_stages = 2, .micro_batches = 3}), {})}) {
    for (const Rank rank : all<Rank>(whole.shape.ranks)) {
      for (std::size_t position = 0; position < whole.actions[rank].size(); ++position) {
        Schedule schedule = whole;
        schedule.actions[rank].erase(schedule.actions[rank].begin() + static_cast<std::ptrdiff_t>(position));

        EXPECT_THAT(validate(schedule), Not(IsEmpty())) << to_text(whole.actions[rank][position]);
      }
    }
  }
}

TEST(Validate, FindsEveryActionThatIsDuplicated) {
  const Schedule whole = base();
  for (const Rank rank : all<Rank>(whole.shape.ranks)) {
    for (const Action& action : whole.actions[rank]) {
      Schedule schedule = whole;
      append(schedule, rank, action);

      EXPECT_THAT(texts(validate(schedule)), HasSubstr("stands in the list already")) << to_text(action);
    }
  }
}

TEST(Validate, KeepsGoingAfterTheFirstFault) {
  Schedule schedule = base();
  erase(schedule, Rank{0}, "0B1");
  erase(schedule, Rank{1}, "1STEP");
  move_before(schedule, Rank{1}, "1RECV_F1", "1RECV_F0");

  const auto rules = rules_of(validate(schedule));

  EXPECT_TRUE(rules.count(Rule::coverage) > 0 && rules.count(Rule::host) > 0 && rules.count(Rule::channel_order) > 0);
}

TEST(RequireValid, ListsFindingsAndCountsTheRest) {
  Schedule schedule = complete(gpipe({.pipeline = 1, .virtual_stages = 1, .micro_batches = 30}), {});
  for (int m = 0; m < 30; ++m) erase(schedule, Rank{0}, fmt::format("0F{}", m));
  const auto findings = validate(schedule);

  try {
    require_valid(schedule, findings);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("schedule 'gpipe' cannot run"), HasSubstr("V2 rank 0: `0F0` is missing"),
                                    HasSubstr(fmt::format("and {} more", findings.size() - 20))));
  }
  EXPECT_NO_THROW(require_valid(base(), validate(base())));
}

/// What the user reads of a file.
std::string refusal_of_file(const std::string& csv) {
  try {
    require_valid_file(complete(read_schedule_csv(csv, "mine.csv"), {}), csv, "mine.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::damaged_input);
    return error.what();
  }
  return "";
}

TEST(RequireValidFile, NamesCellsOfTheFile) {
  EXPECT_EQ(refusal_of_file("0F0,,0F1,0B0,0B1"), "");
  EXPECT_THAT(refusal_of_file("0F0,,0F1,0B1,0B0"), HasSubstr("V8 rank 0, row 1, cell 5 `0B0`: adds"));
  // The second 0F0 is the file's second too; what a finding refers to is a cell as well.
  EXPECT_THAT(refusal_of_file("0F0,0F0,0B0"),
              HasSubstr("V2 rank 0, row 1, cell 2 `0F0`: stands in the list already, as row 1, cell 1"));
}

TEST(RequireValidFile, TellsWhatWasCompletedFromWhatIsInTheFile) {
  const std::string refusal = refusal_of_file("0F0,0B0\n1B0,1F0");

  EXPECT_THAT(refusal, AllOf(HasSubstr("V4 rank 1, row 2, cell 1 `1B0`: needs `1F0`, which stands behind it, as row 2, "
                                       "cell 2"),
                             HasSubstr("of the completed list `"), HasSubstr("--csv -")));
}

TEST(RequireValid, CountsOneFindingAsOne) {
  try {
    require_valid(base(), {{Rule::coverage, Rank{0}, -1, "V2 rank 0: `0F0` is missing"}});
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot run (1 finding):\nV2"));
  }
}

}  // namespace
}  // namespace penstock
