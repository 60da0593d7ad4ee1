// SPDX-License-Identifier: Apache-2.0
#include "schedule/streaming.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/helpers.hpp"
#include "schedule/kinds.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/streamed_generators.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

bool is_parameters(const SymbolicBuffer& buffer) {
  return buffer.kind == BufferKind::parameters || buffer.kind == BufferKind::backward_parameters;
}

/// The most parameters of stages that lie on the rank at one place of its list.
std::size_t most_resident(const Schedule& schedule, Rank rank) {
  std::set<SymbolicBuffer> resident;
  std::size_t most = 0;
  for (const Action& action : schedule.actions[rank]) {
    for (const auto& buffer : takes(schedule, {rank, action})) {
      if (is_parameters(buffer)) resident.insert(buffer);
    }
    most = std::max(most, resident.size());
    for (const auto& buffer : frees(schedule, {rank, action})) resident.erase(buffer);
  }
  return most;
}

/// Calls visit(compute schedule, options that complete it) over kinds and sizes.
template <class Visit>
void for_each_streamed(const Visit& visit) {
  for (const std::int32_t p : {1, 2, 3, 4}) {
    for (const std::int32_t m : {1, 2, 4, 5}) {
      for (const std::int32_t n : {1, 2, 3}) {
        GeneratorOptions options{.pipeline = p, .micro_batches = m, .slices = n};
        for (const auto& [forward, backward] : {std::pair{1, 1}, {1, 3}, {2, 6}, {3, 2}}) {
          options.forward_virtual = forward;
          options.backward_virtual = backward;
          visit(spipe(options));
        }
        options.forward_virtual = options.backward_virtual = 1;
        options.virtual_stages = 3;
        for (const auto* kind : {"mobius", "svpp"}) visit(generate(kind, options));
        if (n == 1) visit(generate("interleaved", options));
      }
    }
  }
}

TEST(Streaming, GivesValidSchedulesThatNeverHoldMoreStagesThanAllowed) {
  for_each_streamed([](const Schedule& compute) {
    for (const bool tied : {false, true}) {
      for (const std::int32_t places : {1, 2, 3}) {
        CompletionOptions options;
        options.stream_parameters = true;
        options.resident_stages = places;
        options.tied_embeddings = tied;
        const Schedule schedule = complete(compute, options);

        EXPECT_THAT(validate(schedule), IsEmpty()) << describe(schedule) << "\n" << texts(validate(schedule));
        for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
          EXPECT_LE(most_resident(schedule, rank), static_cast<std::size_t>(places)) << describe(schedule);
        }
      }
    }
  });
}

TEST(Streaming, FetchesTheNextStageWhileTheOneBeforeComputes) {
  GeneratorOptions options{.pipeline = 1, .virtual_stages = 4, .micro_batches = 1};
  const Schedule schedule = add_parameter_streaming(breadth_first(options), 2);

  // The last two forward stages stay: the backward pass starts with them. In the order of the list each fetch but the
  // first two stands behind the eviction that makes place, and one stage ahead of its use.
  EXPECT_EQ(row(schedule, Rank{0}),
            "0FETCH_F 1FETCH_F 0F0 0EVICT_F 2FETCH_F 1F0 1EVICT_F 3FETCH_F 2F0 3F0 3B0 3EVICT_B 1FETCH_B 2B0 2EVICT_B "
            "0FETCH_B 1B0 1EVICT_B 0B0 0EVICT_B");
}

TEST(Streaming, WithOnePlaceWaitsForTheStageBefore) {
  GeneratorOptions options{.pipeline = 1, .virtual_stages = 2, .micro_batches = 1};
  const Schedule schedule = add_parameter_streaming(breadth_first(options), 1);

  EXPECT_EQ(row(schedule, Rank{0}), "0FETCH_F 0F0 0EVICT_F 1FETCH_F 1F0 1B0 1EVICT_B 0FETCH_B 0B0 0EVICT_B");
}

TEST(Streaming, LetsAFetchWaitForTheEvictionBeforeItAndAUseForItsFetch) {
  GeneratorOptions options{.pipeline = 1, .virtual_stages = 2, .micro_batches = 1};
  const Schedule schedule = add_parameter_streaming(breadth_first(options), 1);
  const ScheduleIndex index{schedule};
  const ActionOnRank fetch{Rank{0}, {Op::fetch_forward, Stage{1}, MicroBatch{0}, Slice{0}}};
  const ActionOnRank backward{Rank{0}, {Op::backward, Stage{1}, MicroBatch{0}, Slice{0}}};

  EXPECT_EQ(to_text(needs(index, fetch).at(0).action), "0EVICT_F");
  EXPECT_EQ(to_text(needs(index, backward).at(0).action), "1FETCH_F");
}

TEST(Streaming, RefusesADeviceWithoutPlace) {
  EXPECT_THROW(add_parameter_streaming(gpipe({1, 1, 1}), 0), Error);
}

TEST(Streaming, WithoutAFetchIsAFinding) {
  Schedule schedule = complete(mobius({.pipeline = 2, .virtual_stages = 2, .micro_batches = 2}), {});
  erase(schedule, Rank{1}, "1FETCH_F");

  EXPECT_THAT(texts(validate(schedule)), HasSubstr("uses the parameters of stage 1"));
}

TEST(Streaming, WithoutItDecoupledPassesAreAFinding) {
  Schedule schedule = complete(spipe({.pipeline = 2, .micro_batches = 2, .backward_virtual = 3}), {});
  schedule.streams_parameters = false;

  EXPECT_THAT(texts(validate(schedule)), HasSubstr("expected a schedule that streams them"));
}

TEST(Spipe, ValidatesBehindTheForwardsOfARankWithoutABackward) {
  const Schedule schedule =
      complete(spipe({.pipeline = 3, .micro_batches = 2, .forward_stages = 3, .backward_stages = 2}), {});
  const ScheduleIndex index{schedule};
  const Action validation{Op::validate, Stage{0}, MicroBatch{0}, Slice{0}};

  const auto found = needs(index, {Rank{2}, validation});

  ASSERT_THAT(row(schedule, Rank{2}), Not(HasSubstr("B")));
  EXPECT_THAT(found, Contains(ActionOnRank{Rank{2}, {Op::forward, Stage{2}, MicroBatch{0}, Slice{0}}}));
  EXPECT_THAT(found, Contains(ActionOnRank{Rank{2}, {Op::forward, Stage{2}, MicroBatch{1}, Slice{0}}}));
}

TEST(Spipe, GoesThroughTextUnchanged) {
  const Schedule schedule =
      complete(spipe({.pipeline = 3, .micro_batches = 4, .forward_virtual = 2, .backward_virtual = 6}), {});
  const Schedule read = read_schedule_csv(write_schedule_csv(schedule), schedule.name);

  EXPECT_EQ(read.shape, schedule.shape);
  EXPECT_EQ(read.rank_of, schedule.rank_of);
  EXPECT_EQ(read.backward, schedule.backward);
  EXPECT_EQ(read.actions, schedule.actions);
  EXPECT_EQ(read.streams_parameters, schedule.streams_parameters);
  EXPECT_THAT(texts(validate(read)), IsEmpty());
}

TEST(Spipe, GoesThroughTextOnAnyRanksWithAnyStages) {
  for (const std::int32_t ranks : {1, 2, 3}) {
    for (const std::int32_t forward : {1, 2, 3, 5}) {
      for (const std::int32_t backward : {1, 2, 3, 4, 7}) {
        const Schedule schedule = complete(
            spipe({.pipeline = ranks, .micro_batches = 3, .forward_stages = forward, .backward_stages = backward}), {});

        const Schedule read = read_schedule_csv(write_schedule_csv(schedule), schedule.name);

        EXPECT_EQ(read.actions, schedule.actions);
        EXPECT_EQ(read.shape, schedule.shape);
        EXPECT_THAT(texts(validate(read)), IsEmpty()) << ranks << " ranks, " << forward << " + " << backward;
      }
    }
  }
}

// Methods 1.2: P = 4, vF = 2, vB = 3. Rank 0 runs the top of the backward pass; a later rank lower layers.
TEST(Spipe, DealsTheStagesAsPublished) {
  const Schedule schedule = spipe({.pipeline = 4, .micro_batches = 1, .forward_virtual = 2, .backward_virtual = 3});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 4F0 11B0 7B0 3B0");
  EXPECT_EQ(row(schedule, Rank{3}), "3F0 7F0 8B0 4B0 0B0");
  // 24 phases: forward stage 7 holds the last three, backward stage 10 phases 21 and 22 (from 1).
  EXPECT_EQ(schedule.backward->fed_by[Stage{10}], Stage{6});
  EXPECT_EQ(schedule.backward->fed_by[Stage{11}], Stage{7});
}

TEST(Streaming, BringsNoStageBackForItsWeightGradients) {
  const Schedule compute = read_schedule_csv("0F0,1F0,1I0,0I0,1W0,0W0", "my.csv");

  EXPECT_EQ(row(add_parameter_streaming(compute, 1), Rank{0}),
            "0FETCH_F 0F0 0EVICT_F 1FETCH_F 1F0 1I0 1EVICT_B 0FETCH_B 0I0 0EVICT_B 1W0 0W0");
}

TEST(Streaming, LetsNoWeightGradientWaitForAFetch) {
  const Schedule schedule =
      add_parameter_streaming(read_schedule_csv("0F0,0F1,1F0,1I0,0I0,1W0,1F1,1I1,0I1,1W1,0W0,0W1", "my.csv"), 2);
  const ScheduleIndex index{schedule};

  for (const Action& action : schedule.actions[Rank{0}]) {
    if (action.op != Op::backward_weight) continue;
    const auto after = needs(index, {Rank{0}, action});
    ASSERT_EQ(after.size(), 1U) << to_text(action);
    EXPECT_EQ(after.at(0).action.op, Op::backward_input) << to_text(action);
  }
}

/// R of both stages, then B of both: with one place a stage comes back for the slice whose R it was there for.
Schedule with_stays_of_one_name() {
  return add_parameter_streaming(read_schedule_csv("0F0,1F0,1R0,0R0,1B0,0B0", "my.csv"), 1);
}

TEST(NumberedStays, CountThoseThatBeginOrEndWithTheSameSlice) {
  EXPECT_EQ(row(with_stays_of_one_name(), Rank{0}),
            "0FETCH_F 0F0 0EVICT_F 1FETCH_F 1F0 1R0 1EVICT_B 0FETCH_B 0R0 0EVICT_B 1FETCH_B 1B0 1EVICT_B0/1 "
            "0FETCH_B0/1 0B0 0EVICT_B0/1");
}

TEST(NumberedStays, AreFoundEachInItsPlaceAndWaitedFor) {
  const Schedule schedule = with_stays_of_one_name();
  const ScheduleIndex index{schedule};
  const auto text_of_needs = [&](const Action& action) {
    std::vector<std::string> names;
    for (const auto& need : needs(index, {Rank{0}, action})) names.push_back(to_text(need.action));
    return names;
  };

  std::int32_t position = 0;
  for (const Action& action : schedule.actions[Rank{0}]) {
    EXPECT_EQ(index.position_of({Rank{0}, action}), position++) << to_text(action);
  }
  const Action second{Op::fetch_backward, Stage{0}, MicroBatch{0}, Slice{0}, 1};
  EXPECT_THAT(text_of_needs(second), ElementsAre("1EVICT_B0/1"));
  EXPECT_THAT(text_of_needs({Op::backward, Stage{0}, MicroBatch{0}, Slice{0}}), Contains("0FETCH_B0/1"));
  Action third = second;
  third.part = 2;
  EXPECT_FALSE(index.contains(third));
}

TEST(NumberedStays, AreValidAndGoThroughTextUnchanged) {
  const Schedule schedule = complete(with_stays_of_one_name(), {});
  const Schedule read = read_schedule_csv(write_schedule_csv(schedule), schedule.name);

  EXPECT_THAT(texts(validate(schedule)), IsEmpty());
  EXPECT_EQ(read.actions, schedule.actions);
  EXPECT_TRUE(read.weight_parts.empty());
  EXPECT_THAT(texts(validate(read)), IsEmpty());
}

TEST(NumberedStays, OfOneNumberAreAFindingAndSoAreThoseOfParametersThatStay) {
  Schedule twice = complete(with_stays_of_one_name(), {});
  twice.actions[Rank{0}].push_back({Op::fetch_backward, Stage{0}, MicroBatch{0}, Slice{0}, 1});
  Schedule resident = complete(one_f_one_b({}), {});
  resident.actions[Rank{0}].push_back({Op::fetch_forward, Stage{0}, MicroBatch{0}, Slice{0}, 1});

  EXPECT_THAT(texts(validate(twice)), HasSubstr("`0FETCH_B0/1`: stands in the list already"));
  EXPECT_THAT(texts(validate(resident)), HasSubstr("`0FETCH_F0/1`: expected stages below 1"));
}

/// Calls visit(compute schedule) over all kinds, and forwards alone.
template <class Visit>
void for_each_kind(const Visit& visit) {
  for (const std::int32_t p : {1, 2, 4}) {
    for (const std::int32_t m : {1, 2, 5}) {
      for (const std::int32_t n : {1, 2, 4}) {
        for (const std::int32_t v : {1, 2, 3}) {
          const GeneratorOptions options{.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n};
          for (const KindEntry& entry : kind_table()) {
            if (faults_of(entry.kind, options).empty()) visit(entry.generator(options));
          }
          visit(forward_only(dealt(p, v), m, n, ForwardOrder::stage_by_stage));
        }
      }
    }
  }
}

std::size_t count_numbered(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& list : schedule.actions) {
    count += static_cast<std::size_t>(
        std::count_if(list.begin(), list.end(), [](const Action& action) { return action.part != 0; }));
  }
  return count;
}

TEST(Streaming, TakesEveryKindWithAnyRecomputation) {
  std::set<std::string> kinds;
  std::size_t numbered = 0;
  for_each_kind([&](const Schedule& compute) {
    for (const std::int32_t places : {1, 2}) {
      for (const bool full : {false, true}) {
        if (full && compute.forward_only) continue;
        CompletionOptions options{.stream_parameters = true, .resident_stages = places};
        if (full) options.recompute = PerStage<bool>(compute.ranks(Pass::backward).size(), true);
        const Schedule schedule =
            complete(compute.forward_only ? add_parameter_streaming(compute, places) : compute, options);

        EXPECT_THAT(texts(validate(schedule)), IsEmpty()) << describe(schedule) << ", n=" << schedule.shape.slices;
        kinds.insert(schedule.name.substr(0, schedule.name.find(' ')));
        numbered += count_numbered(schedule);
      }
    }
  });

  EXPECT_GT(kinds.size(), kind_table().size());
  EXPECT_GT(numbered, 0U) << "some schedule brings a stage back for the slice whose R it was there for";
}

Schedule with_late_checkpoints() {
  return complete(spipe({.pipeline = 4, .micro_batches = 4, .forward_virtual = 2, .backward_virtual = 2}),
                  {.late_checkpoints = true});
}

// Rank 3 recomputes the first micro-batch of its backward stage 4 in time step 11, after its 8 forwards and 3 idle
// steps at the start; step 10 of rank 0 is the backward of its third micro-batch.
TEST(LateCheckpoints, LeaveBehindTheTimeStepBeforeTheirUse) {
  const Schedule schedule = with_late_checkpoints();
  const ScheduleIndex index{schedule};

  const ActionOnRank send{Rank{0}, {Op::send_checkpoint, Stage{4}, MicroBatch{0}, Slice{0}}};
  const ActionOnRank receive{Rank{3}, {Op::receive_checkpoint, Stage{4}, MicroBatch{0}, Slice{0}}};

  EXPECT_THAT(needs(index, send), Contains(ActionOnRank{Rank{0}, {Op::backward, Stage{7}, MicroBatch{2}, Slice{0}}}));
  EXPECT_THAT(needs(index, receive), Contains(ActionOnRank{Rank{3}, {Op::forward, Stage{7}, MicroBatch{3}, Slice{0}}}));
  EXPECT_THAT(texts(validate(schedule)), IsEmpty());
}

TEST(LateCheckpoints, NeedRanksThatGoThroughTheirTimeStepsTogether) {
  const CompletionOptions late{.late_checkpoints = true};

  EXPECT_THROW(complete(spipe({.pipeline = 4, .micro_batches = 3}), late), Error);
  EXPECT_THROW(complete(mobius({.pipeline = 4, .micro_batches = 4}), late), Error);
}

TEST(ActivationOffload, LeavesInPlaceWhatIsNeededSoonAndReloadsOneBackwardAhead) {
  const Schedule schedule = add_activation_offload(gpipe({.pipeline = 1, .micro_batches = 4}), 2);

  // Between each forward and its backward lie three actions; the reload of each stands before the backward of another.
  EXPECT_EQ(row(schedule, Rank{0}),
            "0F0 0OFFLOAD_A0 0F1 0OFFLOAD_A1 0F2 0OFFLOAD_A2 0F3 0OFFLOAD_A3 0RELOAD_A0 0RELOAD_A1 0B0 0RELOAD_A2 0B1 "
            "0RELOAD_A3 0B2 0B3");
}

// The passes that come after put actions in the order of time, in which copies last nothing.
TEST(ActivationOffload, KeepsMostOfWhatItOffloadsAwayFromTheDevice) {
  const Schedule compute = generate("seq1f1b", {.pipeline = 2, .micro_batches = 4, .slices = 8});
  CompletionOptions options;
  options.offload_nearest = 2;
  const Schedule schedule = complete(compute, options);

  std::int32_t live = 0;
  std::int32_t most = 0;
  for (const Action& action : schedule.actions[Rank{0}]) {
    for (const auto& buffer : takes(schedule, {Rank{0}, action}))
      live += buffer.kind == BufferKind::offloadable ? 1 : 0;
    most = std::max(most, live);
    for (const auto& buffer : frees(schedule, {Rank{0}, action}))
      live -= buffer.kind == BufferKind::offloadable ? 1 : 0;
  }

  // Nine are in flight; on the device are the one that computes, the one that comes back, and those too near to leave.
  EXPECT_LE(most, 5);
}

TEST(ActivationOffload, GivesValidSchedules) {
  for_each_generated([](const Schedule& compute) {
    if (compute.forward_only) return;
    const Schedule schedule = complete(add_activation_offload(compute, 1), {});

    EXPECT_THAT(texts(validate(schedule)), IsEmpty()) << describe(schedule);
  });
}

}  // namespace
}  // namespace penstock
