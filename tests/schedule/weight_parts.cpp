// SPDX-License-Identifier: Apache-2.0
#include "schedule/weight_parts.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/graph.hpp"
#include "schedule/helpers.hpp"
#include "schedule/schedule_index.hpp"
#include "schedule/semantics.hpp"
#include "schedule/sliced_generators.hpp"

namespace penstock {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// The schedule with each W in so many parts, one behind the other.
Schedule in_parts(const Schedule& schedule, std::uint8_t parts) {
  Schedule result = schedule;
  result.weight_parts = PerStage<std::uint8_t>(schedule.ranks(Pass::backward).size(), parts);
  for (auto& list : result.actions) {
    std::vector<Action> cut;
    for (Action action : list) {
      if (action.op != Op::backward_weight) {
        cut.push_back(action);
        continue;
      }
      while (action.part < parts) {
        ++action.part;
        cut.push_back(action);
      }
    }
    list = std::move(cut);
  }
  return result;
}

/// Two stages on two ranks, two micro-batches, every W in three parts.
Schedule three_parts() {
  return in_parts(complete(one_f_one_b({.pipeline = 2, .micro_batches = 2}), {.split_weight_gradients = true}), 3);
}

Action part_of(std::int32_t stage, std::int32_t micro_batch, std::uint8_t part) {
  return {Op::backward_weight, Stage{stage}, MicroBatch{micro_batch}, Slice{0}, part};
}

TEST(WeightParts, ShareAllProductsOnceInOrderAsEquallyAsCanBe) {
  for (const std::int64_t products : {1, 4, 7, 29, 300}) {
    for (std::int64_t parts = 1; parts <= std::min<std::int64_t>(products, most_weight_parts); ++parts) {
      std::int64_t end = 0;
      for (std::int64_t part = 1; part <= parts; ++part) {
        const ProductRange range = products_of_part(part, parts, products);

        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.end - range.begin, products / parts);
        EXPECT_LE(range.end - range.begin, (products + parts - 1) / parts);
        end = range.end;
      }
      EXPECT_EQ(end, products);
    }
  }
  EXPECT_EQ(finest_weight_parts(29), 29);
  EXPECT_EQ(finest_weight_parts(300), 255);
}

// --- text ---

TEST(WeightPartText, NamesThePartBehindASlash) {
  EXPECT_EQ(to_text(part_of(2, 0, 5)), "2W0/5");
  EXPECT_EQ(to_text({Op::backward_weight, Stage{2}, MicroBatch{0}, Slice{3}, 5}, 8), "2W0.3/5");
  EXPECT_EQ(to_text(part_of(2, 0, 0)), "2W0");
}

TEST(WeightPartText, RoundsTripThroughCsv) {
  const Schedule sliced =
      in_parts(complete(svpp({.pipeline = 2, .micro_batches = 2, .slices = 3}), {.split_weight_gradients = true}), 11);
  for (const Schedule& schedule : {three_parts(), sliced}) {
    const Schedule read = read_schedule_csv(write_schedule_csv(schedule), schedule.name);

    EXPECT_EQ(read.actions, schedule.actions);
    EXPECT_EQ(read.weight_parts, schedule.weight_parts);
  }
}

TEST(WeightPartText, GivesAStageAsManyPartsAsTheLargestThatIsNamed) {
  const Schedule schedule = read_schedule_csv("0F0,1F0,1I0,1W0/2,1W0/1,1W0/3,0I0,0W0", "my.csv");

  EXPECT_EQ(schedule.parts_of_weight(Stage{0}), 1);
  EXPECT_EQ(schedule.parts_of_weight(Stage{1}), 3);
  EXPECT_TRUE(read_schedule_csv("0F0,0I0,0W0", "my.csv").weight_parts.empty());
}

TEST(WeightPartText, RefusesPartsThatCannotBe) {
  EXPECT_THAT(refusal_of_text("0F0,0I0,0W0/0"), HasSubstr("cell 3 `0W0/0`: expected a number behind the slash"));
  EXPECT_THAT(refusal_of_text("0F0,0I0,0W0/"), HasSubstr("from 1 to 255"));
  EXPECT_THAT(refusal_of_text("0F0,0I0,0W0/256"), HasSubstr("from 1 to 255"));
  EXPECT_THAT(refusal_of_text("0F0,0I0/1,0W0/1"), HasSubstr("expected I without a slash: only W has parts"));
  EXPECT_THAT(refusal_of_text("0F0,0I0,0W0/1.2"), HasSubstr("of W an optional /<part>"));
}

// --- where they stand ---

TEST(ScheduleIndex, FindsEachPartOfAWeightGradient) {
  const Schedule schedule = three_parts();
  const ScheduleIndex index{schedule};

  for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
    std::int32_t position = 0;
    for (const Action& action : schedule.actions[rank]) {
      EXPECT_EQ(index.position_of({rank, action}), position) << to_text(action);
      ++position;
    }
  }
  EXPECT_FALSE(index.contains(part_of(0, 0, 0)));
  EXPECT_FALSE(index.contains(part_of(0, 0, 4)));
}

TEST(ScheduleIndex, KnowsNoPartsOfOtherActionsNorOfWholeWeightGradients) {
  Schedule schedule = three_parts();
  schedule.weight_parts[Stage{1}] = 1;

  EXPECT_TRUE(is_within(schedule, part_of(0, 0, 3)));
  EXPECT_FALSE(is_within(schedule, part_of(0, 0, 4)));
  EXPECT_FALSE(is_within(schedule, part_of(1, 0, 1)));
  EXPECT_FALSE(is_within(schedule, {Op::backward_input, Stage{0}, MicroBatch{0}, Slice{0}, 1}));
  EXPECT_FALSE(is_within(schedule, {Op::validate, Stage{0}, MicroBatch{0}, Slice{0}, 1}));
}

// --- semantics ---

TEST(Needs, OfAPartIsTheInputGradientAndOfTheCopyOfGradientsEveryPart) {
  const Schedule schedule = three_parts();

  EXPECT_THAT(need_texts(schedule, {Rank{1}, part_of(1, 1, 2)}), ElementsAre("1I1"));
  EXPECT_THAT(need_texts(schedule, {Rank{1}, {Op::offload_gradients, Stage{1}, MicroBatch{0}, Slice{0}}}),
              ElementsAre("1W0/1", "1W0/2", "1W0/3", "1W1/1", "1W1/2", "1W1/3"));
}

TEST(Buffers, OfAWeightGradientInPartsAreFreedByTheLast) {
  const Schedule schedule = three_parts();
  const auto kinds_freed = [&](std::uint8_t part) {
    std::vector<BufferKind> kinds;
    for (const SymbolicBuffer& buffer : frees(schedule, {Rank{0}, part_of(0, 0, part)})) kinds.push_back(buffer.kind);
    return kinds;
  };

  EXPECT_THAT(kinds_freed(1), IsEmpty());
  EXPECT_THAT(kinds_freed(2), IsEmpty());
  EXPECT_THAT(kinds_freed(3), UnorderedElementsAre(BufferKind::activations, BufferKind::weight_operands));
}

TEST(UnitDuration, IsSharedEquallyByTheParts) {
  EXPECT_EQ(unit_duration(three_parts(), part_of(0, 0, 2)), Seconds{1.0 / 3});
  EXPECT_EQ(unit_duration(three_parts(), part_of(0, 0, 0)), Seconds{1});
}

// --- validator ---

TEST(ValidateParts, FindsNothingInACompleteScheduleWhateverTheirOrder) {
  Schedule schedule = three_parts();
  EXPECT_THAT(validate(schedule), IsEmpty());

  move_before(schedule, Rank{0}, "0W0/2", "0W0/1");
  move_before(schedule, Rank{0}, "0W1/1", "0W0/3");
  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::need, 0, "`0W1/1`: needs `0I1`")));

  move_before(schedule, Rank{0}, "0I1", "0W1/1");
  move_before(schedule, Rank{0}, "0RECV_B1", "0I1");
  EXPECT_THAT(validate(schedule), IsEmpty()) << row(schedule, Rank{0});
}

TEST(ValidateParts, AllowsWholeOnesBesideThem) {
  Schedule schedule = three_parts();
  for (const char* part : {"0W0/2", "0W0/3"}) erase(schedule, Rank{0}, part);
  schedule.actions[Rank{0}][static_cast<std::size_t>(find(schedule, Rank{0}, "0W0/1"))].part = 0;

  EXPECT_THAT(validate(schedule), IsEmpty()) << row(schedule, Rank{0});
}

TEST(ValidateParts, FindsOneThatIsMissing) {
  for (const std::string part : {"0W1/1", "0W1/2", "0W1/3"}) {
    Schedule schedule = three_parts();
    erase(schedule, Rank{0}, part);

    EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::coverage, 0, "`" + part + "` is missing")));
  }
}

TEST(ValidateParts, FindsOneThatStandsTwice) {
  Schedule schedule = three_parts();
  schedule.actions[Rank{0}].push_back(part_of(0, 1, 2));

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::coverage, 0, "`0W1/2`: stands in the list already")));
}

TEST(ValidateParts, FindsAWholeWeightGradientOrBackwardBesideThem) {
  for (const auto& [op, text] : {std::pair{Op::backward_weight, "the list has W in one and in parts"},
                                 std::pair{Op::backward, "the list has the whole B too"}}) {
    Schedule schedule = three_parts();
    schedule.actions[Rank{0}].insert(schedule.actions[Rank{0}].begin() + find(schedule, Rank{0}, "0W1/1"),
                                     {op, Stage{0}, MicroBatch{1}, Slice{0}});

    const auto findings = validate(schedule);

    EXPECT_THAT(findings, Contains(a_finding(Rule::coverage, 0, fmt::format("`0W1/2`: {}", text))));
  }
}

TEST(ValidateParts, FindsAPartThatTheStageHasNot) {
  Schedule schedule = three_parts();
  schedule.actions[Rank{0}].push_back(part_of(0, 1, 4));
  schedule.actions[Rank{0}].push_back({Op::forward, Stage{0}, MicroBatch{1}, Slice{0}, 1});
  Schedule whole = complete(one_f_one_b({}), {.split_weight_gradients = true});
  whole.actions[Rank{0}].push_back(part_of(0, 0, 1));

  const auto findings = validate(schedule);

  EXPECT_THAT(findings, Contains(a_finding(Rule::placement, 0, "`0W1/4`: expected")));
  EXPECT_THAT(texts(findings), HasSubstr("and parts of the W of stage 0 from 1 to 3"));
  EXPECT_THAT(texts(findings), HasSubstr("and a slash only behind W, and stays of streamed parameters"));
  EXPECT_THAT(texts(validate(whole)), HasSubstr("and the W of stage 0 in one"));
}

TEST(ValidateParts, FindsTheLastBeforeAnotherOfItsWeightGradient) {
  Schedule schedule = three_parts();
  move_before(schedule, Rank{0}, "0W1/3", "0W1/2");

  EXPECT_THAT(validate(schedule), Contains(a_finding(Rule::buffer, 0,
                                                     "`0W1/2`: uses the activations of stage 0, micro-batch 1, which "
                                                     "`0W1/3`")));
}

TEST(ValidateParts, FindsAPartThatAddsMicroBatchesInAnotherOrder) {
  // All Ws behind all Is; then part 2 of micro-batch 1 before that of micro-batch 0, and each other part in order.
  Schedule schedule = complete(read_schedule_csv("0F0,0F1,0I0,0I1,0W0/1,0W1/1,0W0/2,0W1/2,0W0/3,0W1/3", "parts"), {});
  EXPECT_THAT(validate(schedule), IsEmpty());

  move_before(schedule, Rank{0}, "0W1/2", "0W0/2");

  EXPECT_THAT(validate(schedule), ElementsAre(a_finding(Rule::accumulation_order, 0,
                                                        "`0W0/2`: adds to the weight gradients after `0W1/2`")));
}

TEST(ValidateParts, FindsAWholeWeightGradientInAnotherOrderThanAPart) {
  const Schedule schedule =
      complete(read_schedule_csv("0F0,0F1,0F2,0I0,0I1,0I2,0W1/1,0W1/2,0W0,0W2/1,0W2/2", "parts"), {});

  EXPECT_THAT(validate(schedule),
              ElementsAre(a_finding(Rule::accumulation_order, 0, "`0W0`: adds to the weight gradients after `0W1/1`")));
}

TEST(ValidateParts, StopsWhereTheirTableIsNotOfTheStages) {
  Schedule schedule = three_parts();
  schedule.weight_parts.push_back(3);

  EXPECT_THAT(texts(validate(schedule)), HasSubstr("weight parts are given for 3 stages; the backward pass has 2"));
}

}  // namespace
}  // namespace penstock
