// SPDX-License-Identifier: Apache-2.0
#include "schedule/streaming.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/generators.hpp"
#include "schedule/helpers.hpp"
#include "schedule/passes.hpp"
#include "schedule/semantics.hpp"
#include "schedule/streamed_generators.hpp"
#include "schedule/text.hpp"
#include "schedule/validator.hpp"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Methods 1.2: P = 4, vF = 2, vB = 3. Rank 0 runs the top of the backward pass; a later rank lower layers.
TEST(Spipe, DealsTheStagesAsPublished) {
  const Schedule schedule = spipe({.pipeline = 4, .micro_batches = 1, .forward_virtual = 2, .backward_virtual = 3});

  EXPECT_EQ(row(schedule, Rank{0}), "0F0 4F0 11B0 7B0 3B0");
  EXPECT_EQ(row(schedule, Rank{3}), "3F0 7F0 8B0 4B0 0B0");
  // 24 phases: forward stage 7 holds the last three, backward stage 10 phases 21 and 22 (from 1).
  EXPECT_EQ(schedule.backward->fed_by[Stage{10}], Stage{6});
  EXPECT_EQ(schedule.backward->fed_by[Stage{11}], Stage{7});
}

TEST(ParameterStreaming, RefusesToBringAStageBackForTheSameSlice) {
  // The W of a cell stands behind the work of the rank's other stage.
  const Schedule schedule = generate("zb_v", {.pipeline = 2, .virtual_stages = 2, .micro_batches = 4});

  std::string message;
  try {
    add_parameter_streaming(schedule, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("memory.resident_stages 1"));
  EXPECT_THAT(message, HasSubstr("raise memory.resident_stages"));
  EXPECT_NO_THROW(add_parameter_streaming(schedule, 2));
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
