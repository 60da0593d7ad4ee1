// SPDX-License-Identifier: Apache-2.0
#include "schedule/semantics.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/helpers.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// Three stages on three ranks, or as the options say.
Schedule three_stages(const CompletionOptions& options = {}) {
  return complete(gpipe({.pipeline = 3, .virtual_stages = 1, .micro_batches = 2}), options);
}

Schedule one_rank(const CompletionOptions& options = {}) {
  return complete(gpipe({.pipeline = 1, .virtual_stages = 3, .micro_batches = 2}), options);
}

ActionOnRank node(const Schedule& schedule, Op op, std::int32_t stage, std::int32_t micro_batch = 0) {
  return {schedule.rank_of[Stage{stage}], {op, Stage{stage}, MicroBatch{micro_batch}, Slice{0}}};
}

TEST(Needs, OfAForwardIsItsReceiveOrTheStageBeforeOnTheRank) {
  EXPECT_THAT(need_texts(three_stages(), node(three_stages(), Op::forward, 0)), IsEmpty());
  EXPECT_THAT(need_texts(three_stages(), node(three_stages(), Op::forward, 1)), ElementsAre("1RECV_F0"));
  EXPECT_THAT(need_texts(one_rank(), node(one_rank(), Op::forward, 1)), ElementsAre("0F0"));
}

TEST(Needs, OfABackwardIsItsForwardAndTheGradientOfItsOutput) {
  EXPECT_THAT(need_texts(three_stages(), node(three_stages(), Op::backward, 2)), ElementsAre("2F0"));
  EXPECT_THAT(need_texts(three_stages(), node(three_stages(), Op::backward, 1)), ElementsAre("1F0", "1RECV_B0"));
  EXPECT_THAT(need_texts(one_rank(), node(one_rank(), Op::backward, 1)), ElementsAre("1F0", "2B0"));
}

TEST(Needs, OfABackwardIsTheRecomputedForwardWhereTheStageRecomputes) {
  const Schedule schedule = three_stages({.recompute = PerStage<bool>(3, true)});

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::backward, 2)), ElementsAre("2R0"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::recompute, 2)), ElementsAre("2F0"));
}

TEST(Needs, OfASplitBackwardNamesInputGradients) {
  const Schedule schedule = one_rank({.split_weight_gradients = true});

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::backward_input, 1)), ElementsAre("1F0", "2I0"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::backward_weight, 1)), ElementsAre("1I0"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::offload_gradients, 1)), ElementsAre("1W0", "1W1"));
}

TEST(Needs, OfMessagesAreTheirProducers) {
  const Schedule schedule = three_stages();

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::send_forward, 1)), ElementsAre("1F0"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::send_backward, 1)), ElementsAre("1B0"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::receive_forward, 1)), IsEmpty());
}

TEST(Needs, OfSlicesRunForwardAscendingAndBackwardDescending) {
  const Schedule schedule = read_schedule_csv("0F0.0,0F0.1,0B0.1,0B0.0", "slices");
  const Action forward{Op::forward, Stage{0}, MicroBatch{0}, Slice{1}};
  const Action backward{Op::backward, Stage{0}, MicroBatch{0}, Slice{0}};

  EXPECT_THAT(need_texts(schedule, {Rank{0}, forward}), ElementsAre("0F0.0"));
  EXPECT_THAT(need_texts(schedule, {Rank{0}, backward}), ElementsAre("0F0.0", "0B0.1"));
}

TEST(Needs, OfHostActionsRunFromOffloadToFetch) {
  const Schedule schedule = three_stages({.steps_wait = StepsWait::for_reduction});

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::offload_gradients, 1)), ElementsAre("1B0", "1B1"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::reduce, 1)), ElementsAre("1OFFLOAD_G"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::step, 1)), ElementsAre("1REDUCE"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::fetch_forward, 1)), ElementsAre("1STEP"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, {Op::validate, Stage{0}, MicroBatch{0}, Slice{0}}}),
              ElementsAre("0REDUCE", "1REDUCE", "2REDUCE"));
}

TEST(Needs, OfAStepIsTheValidationWhereItStandsBehindIt) {
  const Schedule schedule = three_stages({.steps_wait = StepsWait::for_norm});

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::step, 1)), ElementsAre("1REDUCE", "VALIDATE"));
}

TEST(Needs, OfATiedWeightGoFromTheLastStageToTheFirstAndBack) {
  for (const Schedule& schedule : {three_stages({.tied_embeddings = true, .steps_wait = StepsWait::for_reduction}),
                                   one_rank({.tied_embeddings = true, .steps_wait = StepsWait::for_reduction})}) {
    EXPECT_THAT(need_texts(schedule, node(schedule, Op::reduce, 0)), ElementsAre("0OFFLOAD_G", "2REDUCE"));
    EXPECT_THAT(need_texts(schedule, node(schedule, Op::step, 2)), ElementsAre("2REDUCE", "0STEP"));
  }
}

TEST(Needs, OfAnUndoAreItsStepAndTheValidationAndTheFetchWaitsForIt) {
  const Schedule schedule = three_stages({.steps_wait = StepsWait::speculative});

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::step, 1)), ElementsAre("1REDUCE"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::undo, 1)), ElementsAre("1STEP", "VALIDATE"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::fetch_forward, 1)), ElementsAre("1UNDO"));
}

TEST(Needs, OfATiedUndoFollowTheFirstStages) {
  for (const Schedule& schedule : {three_stages({.tied_embeddings = true, .steps_wait = StepsWait::speculative}),
                                   one_rank({.tied_embeddings = true, .steps_wait = StepsWait::speculative})}) {
    EXPECT_THAT(need_texts(schedule, node(schedule, Op::undo, 0)), ElementsAre("0STEP", "VALIDATE"));
    EXPECT_THAT(need_texts(schedule, node(schedule, Op::undo, 2)), ElementsAre("2STEP", "VALIDATE", "0UNDO"));
  }
}

TEST(StepsWaitOf, ReadsFromTheListsWhatTheyWereCompletedWith) {
  for (const auto wait : {StepsWait::for_norm, StepsWait::for_reduction, StepsWait::speculative}) {
    EXPECT_EQ(steps_wait_of(three_stages({.steps_wait = wait})), wait);
    EXPECT_EQ(steps_wait_of(three_stages({.tied_embeddings = true, .steps_wait = wait})), wait);
  }
}

TEST(Needs, OfATiedWeightOnTheOnlyStageAreNone) {
  const Schedule schedule = complete(gpipe({}), {.tied_embeddings = true, .steps_wait = StepsWait::for_reduction});

  EXPECT_THAT(need_texts(schedule, node(schedule, Op::reduce, 0)), ElementsAre("0OFFLOAD_G"));
  EXPECT_THAT(need_texts(schedule, node(schedule, Op::step, 0)), ElementsAre("0REDUCE"));
}

TEST(MissingNeeds, NamesWhatTheListsLack) {
  Schedule schedule = three_stages();
  erase(schedule, Rank{1}, "1RECV_F0");
  const ScheduleIndex index{schedule};

  const auto missing = missing_needs(index, node(schedule, Op::forward, 1));

  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing[0], node(schedule, Op::receive_forward, 1));
}

TEST(Buffers, OfAForwardAreItsActivationsAndWhereItsResultGoes) {
  const Schedule apart = three_stages();
  const Schedule together = one_rank();

  EXPECT_THAT(buffer_texts(takes(apart, node(apart, Op::forward, 1))), ElementsAre("activations 1", "output 1"));
  EXPECT_THAT(buffer_texts(takes(together, node(together, Op::forward, 1))), ElementsAre("activations 1", "input 2"));
  EXPECT_THAT(buffer_texts(takes(apart, node(apart, Op::forward, 2))), ElementsAre("activations 2", "logits 2"));
  EXPECT_THAT(buffer_texts(frees(apart, node(apart, Op::forward, 1))), IsEmpty());
  EXPECT_THAT(buffer_texts(uses(apart, node(apart, Op::forward, 1))),
              UnorderedElementsAre("parameters 1", "workspace 0", "input 1", "activations 1", "output 1"));
  EXPECT_THAT(buffer_texts(uses(apart, node(apart, Op::forward, 0))),
              UnorderedElementsAre("parameters 0", "workspace 0", "tokens 0", "activations 0", "output 0"));
}

TEST(Buffers, OfAForwardThatKeepsNothingAreItsResultAlone) {
  const Schedule schedule = complete(forward_only(dealt(3, 1), 1), {});

  EXPECT_THAT(buffer_texts(takes(schedule, node(schedule, Op::forward, 1))), ElementsAre("output 1"));
  EXPECT_THAT(buffer_texts(frees(schedule, node(schedule, Op::forward, 1))), ElementsAre("input 1"));
  EXPECT_THAT(buffer_texts(takes(schedule, node(schedule, Op::forward, 2))), IsEmpty());
  EXPECT_THAT(buffer_texts(frees(schedule, node(schedule, Op::forward, 0))), IsEmpty());
}

TEST(Buffers, OfARecomputedStageAreTakenByR) {
  const Schedule schedule = three_stages({.recompute = PerStage<bool>(3, true)});

  EXPECT_THAT(buffer_texts(takes(schedule, node(schedule, Op::forward, 2))), IsEmpty());
  EXPECT_THAT(buffer_texts(takes(schedule, node(schedule, Op::recompute, 2))),
              ElementsAre("activations 2", "logits 2"));
  EXPECT_THAT(buffer_texts(uses(schedule, node(schedule, Op::recompute, 1))),
              UnorderedElementsAre("parameters 1", "workspace 0", "input 1", "activations 1"));
}

TEST(Buffers, OfABackwardGoBackDownTheStages) {
  const Schedule apart = three_stages();
  const Schedule together = one_rank();

  EXPECT_THAT(buffer_texts(takes(apart, node(apart, Op::backward, 1))), ElementsAre("input_gradient 1"));
  EXPECT_THAT(buffer_texts(takes(together, node(together, Op::backward, 1))), ElementsAre("output_gradient 0"));
  EXPECT_THAT(buffer_texts(takes(apart, node(apart, Op::backward, 0))), IsEmpty());
  EXPECT_THAT(buffer_texts(frees(apart, node(apart, Op::backward, 2))),
              UnorderedElementsAre("activations 2", "logits 2", "input 2"));
  EXPECT_THAT(buffer_texts(frees(apart, node(apart, Op::backward, 0))),
              UnorderedElementsAre("activations 0", "output_gradient 0"));
  EXPECT_THAT(buffer_texts(uses(apart, node(apart, Op::backward, 1))),
              UnorderedElementsAre("parameters 1", "workspace 0", "gradients 1", "input 1", "activations 1",
                                   "output_gradient 1", "input_gradient 1"));
}

TEST(Buffers, OfASplitBackwardKeepActivationsForW) {
  const Schedule schedule = three_stages({.split_weight_gradients = true});

  EXPECT_THAT(buffer_texts(takes(schedule, node(schedule, Op::backward_input, 1))),
              UnorderedElementsAre("weight_operands 1", "input_gradient 1"));
  EXPECT_THAT(buffer_texts(frees(schedule, node(schedule, Op::backward_input, 1))),
              UnorderedElementsAre("input 1", "output_gradient 1"));
  EXPECT_THAT(buffer_texts(frees(schedule, node(schedule, Op::backward_weight, 1))),
              UnorderedElementsAre("activations 1", "weight_operands 1"));
}

/// "activations 1": the kind and the slice, of those that a slice shares with others.
std::vector<std::string> slice_texts(const std::vector<SymbolicBuffer>& buffers) {
  std::vector<std::string> texts;
  for (const SymbolicBuffer& buffer : buffers) {
    if (buffer.kind == BufferKind::activations || buffer.kind == BufferKind::key_values ||
        buffer.kind == BufferKind::key_value_gradients) {
      texts.push_back(fmt::format("{} {}", name_of(buffer.kind), buffer.slice));
    }
  }
  return texts;
}

ActionOnRank slice_node(Op op, std::int32_t slice) {
  return {Rank{0}, {op, Stage{0}, MicroBatch{0}, Slice{slice}}};
}

TEST(Buffers, OfSlicesAreTheKeysAndValuesBeforeAndTheirGradients) {
  const Schedule schedule =
      complete(read_schedule_csv("0F0.0,0F0.1,0F0.2,0I0.2,0I0.1,0I0.0,0W0.2,0W0.1,0W0.0", "slices"), {});
  const auto used = [&](Op op, std::int32_t slice) { return slice_texts(uses(schedule, slice_node(op, slice))); };

  EXPECT_THAT(used(Op::forward, 0), UnorderedElementsAre("activations 0"));
  EXPECT_THAT(used(Op::forward, 2), UnorderedElementsAre("activations 0", "activations 1", "activations 2"));
  EXPECT_THAT(used(Op::backward_input, 1),
              UnorderedElementsAre("activations 0", "activations 1", "key_value_gradients 0", "key_value_gradients 1"));
  EXPECT_THAT(used(Op::backward_weight, 2), UnorderedElementsAre("activations 2"));
  EXPECT_THAT(slice_texts(takes(schedule, slice_node(Op::backward_input, 2))),
              UnorderedElementsAre("key_value_gradients 0", "key_value_gradients 1"));
  EXPECT_THAT(slice_texts(frees(schedule, slice_node(Op::backward_input, 1))),
              UnorderedElementsAre("key_value_gradients 1"));
}

TEST(Buffers, OfSlicesThatKeepNothingAreTheirKeysAndValuesUntilTheLastForward) {
  const auto compute = read_schedule_csv("0F0.0,0F0.1,0F0.2,0B0.2,0B0.1,0B0.0", "slices");
  const Schedule schedule = complete(compute, {.recompute = PerStage<bool>(1, true)});
  const auto of = [&](auto function, Op op, std::int32_t slice) {
    return slice_texts(function(schedule, slice_node(op, slice)));
  };

  EXPECT_THAT(of(takes, Op::forward, 1), UnorderedElementsAre("key_values 1"));
  EXPECT_THAT(of(takes, Op::forward, 2), IsEmpty());
  EXPECT_THAT(of(uses, Op::forward, 2), UnorderedElementsAre("key_values 0", "key_values 1"));
  EXPECT_THAT(of(frees, Op::forward, 2), UnorderedElementsAre("key_values 0", "key_values 1"));
  EXPECT_THAT(of(uses, Op::recompute, 1), UnorderedElementsAre("activations 0", "activations 1"));
  EXPECT_THAT(of(takes, Op::recompute, 1), UnorderedElementsAre("activations 1"));
}

TEST(Buffers, OfMessagesAndCopiesAreWhatTheyMove) {
  const Schedule schedule = three_stages();

  EXPECT_THAT(buffer_texts(uses(schedule, node(schedule, Op::send_forward, 0))), ElementsAre("output 0"));
  EXPECT_THAT(buffer_texts(frees(schedule, node(schedule, Op::send_forward, 0))), ElementsAre("output 0"));
  EXPECT_THAT(buffer_texts(uses(schedule, node(schedule, Op::receive_forward, 1))), ElementsAre("input 1"));
  EXPECT_THAT(buffer_texts(takes(schedule, node(schedule, Op::receive_backward, 1))), ElementsAre("output_gradient 1"));
  EXPECT_THAT(buffer_texts(frees(schedule, node(schedule, Op::send_backward, 1))), ElementsAre("input_gradient 1"));
  EXPECT_THAT(buffer_texts(uses(schedule, node(schedule, Op::offload_gradients, 1))), ElementsAre("gradients 1"));
  EXPECT_THAT(buffer_texts(uses(schedule, node(schedule, Op::fetch_forward, 1))), ElementsAre("parameters 1"));
}

TEST(Messages, HaveAPeerAMatchAndAChannel) {
  const Schedule schedule = three_stages();
  const ActionOnRank send = node(schedule, Op::send_backward, 2);

  EXPECT_EQ(peer_of(schedule, send.action), Rank{1});
  EXPECT_EQ(match_of(schedule, send), node(schedule, Op::receive_backward, 1));
  EXPECT_EQ(match_of(schedule, *match_of(schedule, send)), send);
  EXPECT_EQ(channel_of(schedule, send), (Channel{Rank{2}, Rank{1}, MessageKind::gradients}));
  EXPECT_EQ(channel_of(schedule, *match_of(schedule, send)), channel_of(schedule, send));
}

TEST(Messages, HaveNoPeerBeyondTheEndsNorWithoutAMessage) {
  const Schedule schedule = three_stages();

  EXPECT_EQ(peer_of(schedule, {Op::send_forward, Stage{2}, MicroBatch{0}, Slice{0}}), std::nullopt);
  EXPECT_EQ(peer_of(schedule, {Op::receive_forward, Stage{0}, MicroBatch{0}, Slice{0}}), std::nullopt);
  EXPECT_EQ(peer_of(schedule, {Op::forward, Stage{1}, MicroBatch{0}, Slice{0}}), std::nullopt);
  EXPECT_EQ(channel_of(schedule, node(schedule, Op::forward, 1)), std::nullopt);
}

TEST(EveryOp, HasANameAndALane) {
  for (int op = 0; op < op_count; ++op) {
    EXPECT_NE(name_of(static_cast<Op>(op)), "unknown");
    EXPECT_NE(name_of(lane_of(static_cast<Op>(op))), "unknown");
  }
  for (int kind = 0; kind < buffer_kind_count; ++kind) EXPECT_NE(name_of(static_cast<BufferKind>(kind)), "unknown");
}

}  // namespace
}  // namespace penstock
