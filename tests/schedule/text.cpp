// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/helpers.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ActionText, IsPyTorchsNotation) {
  EXPECT_EQ(to_text({Op::forward, Stage{2}, MicroBatch{0}, Slice{0}}), "2F0");
  EXPECT_EQ(to_text({Op::receive_backward, Stage{0}, MicroBatch{12}, Slice{0}}), "0RECV_B12");
  EXPECT_EQ(to_text({Op::offload_gradients, Stage{3}, MicroBatch{0}, Slice{0}}), "3OFFLOAD_G");
  EXPECT_EQ(to_text({Op::validate, Stage{0}, MicroBatch{0}, Slice{0}}), "VALIDATE");
  EXPECT_EQ(to_text({Op::undo, Stage{3}, MicroBatch{0}, Slice{0}}), "3UNDO");
}

TEST(ActionText, NamesTheSliceWhereThereAreSeveral) {
  const Action action{Op::forward, Stage{2}, MicroBatch{0}, Slice{0}};

  EXPECT_EQ(to_text(action, 4), "2F0.0");
  EXPECT_EQ(to_text({Op::forward, Stage{2}, MicroBatch{0}, Slice{3}}), "2F0.3");
  EXPECT_EQ(to_text({Op::step, Stage{2}, MicroBatch{0}, Slice{0}}, 4), "2STEP");
}

TEST(ScheduleCsv, ReadsARowPerRankWithBubblesAndBlanks) {
  const Schedule schedule = read_schedule_csv("0F0, 0F1 ,,,0B0,0B1\r\n,1F0,1B0,\"1F1\",1B1,\n\n", "my.csv");

  EXPECT_EQ(schedule.shape, (ScheduleShape{2, 2, 2, 1}));
  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(row(schedule, Rank{1}), "1F0 1B0 1F1 1B1");
  EXPECT_EQ(schedule.rank_of[Stage{1}], Rank{1});
  EXPECT_EQ(schedule.name, "my.csv");
  EXPECT_FALSE(schedule.forward_only);
}

TEST(ScheduleCsv, PlacesStagesWhereTheirForwardsAre) {
  const Schedule schedule = read_schedule_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0", "v-shape");

  EXPECT_EQ(schedule.rank_of[Stage{3}], Rank{0});
  EXPECT_EQ(schedule.rank_of[Stage{2}], Rank{1});
}

TEST(ScheduleCsv, SkipsActionsOnShardedParameters) {
  const Schedule schedule = read_schedule_csv("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD", "fsdp.csv");

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 0B0");
}

TEST(ScheduleCsv, SplitsOverlappedPairs) {
  const Schedule schedule =
      read_schedule_csv("0F0,1F0,(0F1;1B0)OVERLAP_F_B,( 1F1 ; 0I0 )OVERLAP_F_B,0W0,1B1,0B1", "dual.csv");

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 1F0 0F1 1B0 1F1 0I0 0W0 1B1 0B1");
}

TEST(ScheduleCsv, TakesRecomputationFromTheRs) {
  const Schedule schedule = read_schedule_csv("0F0,1F0,1R0,1B0,0B0", "r.csv");

  EXPECT_FALSE(schedule.recompute[Stage{0}]);
  EXPECT_TRUE(schedule.recompute[Stage{1}]);
}

TEST(ScheduleCsv, IsForwardOnlyWithoutABackward) {
  EXPECT_TRUE(read_schedule_csv("0F0,0F1", "eval.csv").forward_only);
}

TEST(ScheduleCsv, ReadsItsOwnOpsAndSlices) {
  const Schedule schedule =
      read_schedule_csv("0F0.0,0F0.1,0B0.1,0B0.0,0OFFLOAD_G,0REDUCE,VALIDATE,0STEP,0FETCH_F", "all.csv");

  EXPECT_EQ(schedule.shape.slices, 2);
  EXPECT_EQ(schedule.actions[Rank{0}].back(), (Action{Op::fetch_forward, Stage{0}, MicroBatch{0}, Slice{0}}));
}

TEST(ScheduleCsv, RoundTripsWhatIsCompiled) {
  for_each_generated([](const Schedule& compute) {
    for (const bool recompute : {false, true}) {
      const PerStage<bool> stages(compute.shape.stages, recompute && !compute.forward_only);
      const Schedule schedule = complete(compute, {stages, !recompute});

      EXPECT_EQ(read_schedule_csv(write_schedule_csv(schedule), schedule.name), schedule) << describe(schedule);
      EXPECT_EQ(read_schedule_csv(write_schedule_csv(compute), compute.name), compute) << describe(compute);
    }
  });
}

TEST(ScheduleCsv, RefusesByRowAndCell) {
  EXPECT_THAT(refusal_of_text("0F0,0B0\n1F0,,1X0"),
              AllOf(HasSubstr("my.csv: row 2, cell 3 `1X0`"), HasSubstr("no op X"), HasSubstr("SEND_F")));
  EXPECT_THAT(refusal_of_text("F0"), HasSubstr("expected the number of a stage before F"));
  EXPECT_THAT(refusal_of_text("0F"), HasSubstr("expected the number of a micro-batch behind F"));
  EXPECT_THAT(refusal_of_text("0F0x"), HasSubstr("expected <stage><op><micro-batch>"));
  EXPECT_THAT(refusal_of_text("0 F0"), HasSubstr("expected <stage><op><micro-batch>"));
  EXPECT_THAT(refusal_of_text("0F-1"), HasSubstr("expected <stage><op><micro-batch>"));
  EXPECT_THAT(refusal_of_text("0F0."), HasSubstr("slice behind the dot"));
  EXPECT_THAT(refusal_of_text("0f0"), HasSubstr("expected <stage><op><micro-batch>"));
  EXPECT_THAT(refusal_of_text("0STEP3"), HasSubstr("expected STEP without a micro-batch"));
  EXPECT_THAT(refusal_of_text("0VALIDATE"), HasSubstr("without a stage"));
  EXPECT_THAT(refusal_of_text("(0F0;0B0)"), HasSubstr("expected a pair as"));
  EXPECT_THAT(refusal_of_text("(0F0)OVERLAP_F_B"), HasSubstr("expected a pair as"));
  EXPECT_THAT(refusal_of_text("(0B0;0F0)OVERLAP_F_B"), HasSubstr("expected F and then B"));
  EXPECT_THAT(refusal_of_text("(0F0;0UNSHARD)OVERLAP_F_B"), HasSubstr("expected F and then B"));
  EXPECT_THAT(refusal_of_text("0F0,\x01\xff"), HasSubstr("cell 2 `??`"));
}

TEST(ScheduleCsv, RefusesWhatIsNoSchedule) {
  EXPECT_THAT(refusal_of_text(""), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal_of_text(" \n\r\n"), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal_of_text("0F0\n\n1F0"), HasSubstr("row 2 has no action"));
  EXPECT_THAT(refusal_of_text("0F0\n,,,\n1F0"), HasSubstr("row 2 has no action"));
}

TEST(ScheduleCsv, RefusesHugeNumbers) {
  EXPECT_THAT(refusal_of_text("1000000F0"), HasSubstr("below 1000000"));
  EXPECT_THAT(refusal_of_text("0F99999999999999999999"), HasSubstr("below 1000000"));
  EXPECT_THAT(refusal_of_text("999999F999999.999999"), AllOf(HasSubstr("1000000 stages"), HasSubstr("1 actions")));
  EXPECT_EQ(refusal_of_text("0000000000000F0000000000000"), "accepted");
}

TEST(ScheduleCsv, RefusesStagesOnTwoRanksOrOnNone) {
  EXPECT_THAT(refusal_of_text("0F0\n0F1"), AllOf(HasSubstr("row 2, cell 1 `0F1`"), HasSubstr("row 1 already")));
  EXPECT_THAT(refusal_of_text("0F0\n1F0,0B0"), AllOf(HasSubstr("row 2, cell 2 `0B0`"), HasSubstr("forwards in row 1")));
  EXPECT_THAT(refusal_of_text("0F0,2F0"), HasSubstr("stage 1 has no forward"));
}

TEST(LoadScheduleCsv, ReadsAFileAndRefusesWhatCannotBeRead) {
  const auto folder = std::filesystem::path{testing::TempDir()};
  const std::string path = folder / "penstock_load.csv";
  std::ofstream{path} << "0F0,0B0\n";

  EXPECT_EQ(row(load_schedule_csv(path), Rank{0}), "0F0 0B0");
  std::filesystem::remove(path);
  EXPECT_THROW(load_schedule_csv(path), Error);
  EXPECT_THROW(load_schedule_csv(folder), Error);
}

}  // namespace
}  // namespace penstock
