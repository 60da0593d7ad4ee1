// SPDX-License-Identifier: Apache-2.0
#include "memory/plan.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "memory/helpers.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/streamed_generators.hpp"
#include "schedule/validator.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Complete schedules of every kind and option, small enough for brute force.
std::vector<Schedule> small_schedules() {
  std::vector<Schedule> result;
  for (const int p : {1, 2, 4}) {
    for (const int m : {1, 2, 5}) {
      for (const int v : {1, 2}) {
        const GeneratorOptions options{.pipeline = p, .virtual_stages = v, .micro_batches = m};
        const CompletionOptions recomputed{.recompute = PerStage<bool>(p * v, true)};
        result.push_back(complete(gpipe(options), {}));
        result.push_back(complete(interleaved(options), {}));
        result.push_back(complete(interleaved(options), {.split_weight_gradients = true}));
        result.push_back(complete(interleaved(options), recomputed));
        result.push_back(complete(forward_only(dealt(p, v), m), {}));
        result.push_back(complete(interleaved(options), {.stream_parameters = true, .resident_stages = 1}));
        result.push_back(complete(mobius(options), {}));
        const GeneratorOptions decoupled{
            .pipeline = p, .micro_batches = m, .forward_virtual = v, .backward_virtual = 2};
        if (m >= p) result.push_back(complete(spipe(decoupled), {}));
        if (v == 2) result.push_back(complete(zb_v(options), {.stream_parameters = true, .resident_stages = 1}));
        if (m <= 2) {
          auto sliced = recomputed;
          sliced.stream_parameters = true;
          sliced.resident_stages = 1;
          result.push_back(
              complete(svpp({.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = 2}), sliced));
        }
      }
    }
  }
  return result;
}

std::string describe(const Schedule& schedule, Rank rank) {
  return fmt::format("{} p={} stages={} m={}, rank {}", schedule.name, schedule.shape.ranks, schedule.shape.stages,
                     schedule.shape.micro_batches, rank);
}

bool overlaps(const PlannedBuffer& a, const PlannedBuffer& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

/// A buffer that was live before, with the list position of the action that freed it.
struct Freed {
  PlannedBuffer planned;
  std::int32_t position;
};

/// Walks the plan by brute force; calls visit(position, taken, live, freed) for each buffer taken.
template <class Visit>
void walk(const RankPlan& plan, const Visit& visit) {
  std::vector<PlannedBuffer> live = plan.persistent;
  std::vector<Freed> freed;
  for (std::size_t position = 0; position < plan.actions.size(); ++position) {
    for (const PlannedBuffer& taken : plan.actions[position].takes) {
      visit(static_cast<std::int32_t>(position), taken, live, freed);
      live.push_back(taken);
    }
    for (const SymbolicBuffer& buffer : plan.actions[position].frees) {
      const auto found = std::find_if(live.begin(), live.end(), [&](const auto& one) { return one.buffer == buffer; });
      ASSERT_NE(found, live.end());
      freed.push_back({*found, static_cast<std::int32_t>(position)});
      live.erase(found);
    }
  }
  EXPECT_EQ(live.size(), plan.persistent.size());
}

/// Which node comes before which in the dependence graph with the plans' waits, by walking from each.
class Reachability {
 public:
  Reachability(const Schedule& schedule, const std::vector<MemoryEdge>& edges)
      : index_{schedule}, graph_{index_, edges} {}

  /// Whether the action at `from` must be complete before that at `to` starts. A receive stands under its send's
  /// number.
  bool leads(Rank rank, std::int32_t from, std::int32_t to) const {
    const std::int32_t target = representative(rank, to);
    std::vector<bool> seen(static_cast<std::size_t>(graph_.size()), false);
    std::vector<std::int32_t> stack{representative(rank, from)};
    while (!stack.empty()) {
      const std::int32_t node = stack.back();
      stack.pop_back();
      for (const Successor& successor : graph_.successors(node)) {
        if (successor.node == target) return true;
        if (seen[static_cast<std::size_t>(successor.node)]) continue;
        seen[static_cast<std::size_t>(successor.node)] = true;
        stack.push_back(successor.node);
      }
    }
    return false;
  }

 private:
  std::int32_t representative(Rank rank, std::int32_t position) const {
    const std::int32_t node = graph_.node_of(rank, position);
    if (graph_.is_node(node)) return node;
    const auto send = *match_of(index_.schedule(), graph_.action_of(node));
    return graph_.node_of(send.rank, *index_.position_of(send));
  }

  ScheduleIndex index_;
  DependenceGraph graph_;
};

std::vector<RankPlan> plan_all(const Schedule& schedule, const PerStage<StageBytes>& bytes) {
  std::vector<RankPlan> plans;
  for (const Rank rank : all<Rank>(schedule.shape.ranks)) plans.push_back(plan_alone(schedule, rank, bytes));
  return plans;
}

std::vector<MemoryEdge> edges_of(const std::vector<RankPlan>& plans) {
  std::vector<MemoryEdge> edges;
  for (const RankPlan& plan : plans) {
    const auto more = memory_edges(plan);
    edges.insert(edges.end(), more.begin(), more.end());
  }
  return edges;
}

TEST(PlanRank, NeverOverlapsLiveBuffers) {
  std::uint64_t seed = 0;
  for (const Schedule& schedule : small_schedules()) {
    for (const RankPlan& plan : plan_all(schedule, random_bytes(schedule.most_stages(), ++seed))) {
      Bytes highest = plan.persistent_bytes;
      walk(plan, [&](std::int32_t, const PlannedBuffer& taken, const auto& live, const auto&) {
        EXPECT_EQ(taken.offset.value % buffer_alignment, 0);
        EXPECT_GE(taken.offset, plan.persistent_bytes);
        EXPECT_GE(taken.bytes.value, buffer_alignment);
        for (const PlannedBuffer& other : live) EXPECT_FALSE(overlaps(taken, other)) << describe(schedule, plan.rank);
        highest = std::max(highest, taken.offset + taken.bytes);
      });
      EXPECT_EQ(plan.peak, highest) << describe(schedule, plan.rank);
    }
  }
}

TEST(PlanRank, WaitsForEveryActionThatFreedWhatItTakes) {
  std::uint64_t seed = 100;
  for (const Schedule& schedule : small_schedules()) {
    const auto plans = plan_all(schedule, random_bytes(schedule.most_stages(), ++seed));
    const Reachability order{schedule, edges_of(plans)};
    for (const RankPlan& plan : plans) {
      walk(plan, [&](std::int32_t position, const PlannedBuffer& taken, const auto&, const std::vector<Freed>& freed) {
        for (const Freed& before : freed) {
          if (!overlaps(taken, before.planned)) continue;
          EXPECT_TRUE(order.leads(plan.rank, before.position, position)) << describe(schedule, plan.rank);
        }
      });
    }
  }
}

TEST(PlanRank, HasWaitsThatTheScheduleAloneDoesNotImply) {
  // The test above could pass without any wait if no memory were reused across lanes.
  const Schedule schedule = complete(one_f_one_b({.pipeline = 2, .virtual_stages = 1, .micro_batches = 4}), {});

  EXPECT_FALSE(edges_of(plan_all(schedule, uniform_bytes(2, 256))).empty());
}

TEST(PlanRank, NamesWaitsOnceAndOnlyEarlierActions) {
  for (const Schedule& schedule : small_schedules()) {
    for (const RankPlan& plan : plan_all(schedule, random_bytes(schedule.most_stages(), 7))) {
      for (std::size_t position = 0; position < plan.actions.size(); ++position) {
        const auto& waits = plan.actions[position].waits_for;
        EXPECT_TRUE(std::is_sorted(waits.begin(), waits.end()));
        EXPECT_EQ(std::adjacent_find(waits.begin(), waits.end()), waits.end());
        EXPECT_TRUE(waits.empty() || waits.back() < static_cast<std::int32_t>(position));
      }
    }
  }
}

TEST(PlanRank, ClosesNoCycleWhateverTheSizes) {
  std::uint64_t seed = 200;
  for (const Schedule& schedule : small_schedules()) {
    for (const auto& bytes :
         {uniform_bytes(schedule.most_stages(), 256), random_bytes(schedule.most_stages(), ++seed)}) {
      EXPECT_THAT(validate(schedule, edges_of(plan_all(schedule, bytes))), IsEmpty()) << describe(schedule, Rank{0});
    }
  }
}

TEST(PlanRank, KeepsTheActivationsThatTheScheduleIsKnownFor) {
  constexpr std::int64_t activation = 1 << 20;
  for (const int p : {1, 2, 4, 8}) {
    for (const int m : {1, 3, 8, 12}) {
      auto bytes = uniform_bytes(p, 0);
      for (StageBytes& each : bytes) each[static_cast<std::size_t>(BufferKind::activations)] = Bytes{activation};
      for (const Rank rank : all<Rank>(p)) {
        const GeneratorOptions options{.pipeline = p, .virtual_stages = 1, .micro_batches = m};
        const auto at_peak = [&](const Schedule& schedule) {
          return plan_alone(complete(schedule, {}), rank, bytes).at_peak[BufferKind::activations].value / activation;
        };

        EXPECT_EQ(at_peak(one_f_one_b(options)), std::min(m, p - rank.value()));
        EXPECT_EQ(at_peak(gpipe(options)), m);
      }
    }
  }
}

TEST(PlanRank, HasTwoPlacesForTwoStagesThoughTheyDiffer) {
  Schedule schedule = complete(mobius({.pipeline = 1, .virtual_stages = 3, .micro_batches = 1}), {});
  PerStage<StageBytes> bytes = uniform_bytes(3, 0);
  const auto parameters = static_cast<std::size_t>(BufferKind::parameters);
  for (const Stage stage : all<Stage>(3)) bytes[stage][parameters] = Bytes{1000 + 1000 * stage.value()};

  const RankPlan plan = plan_alone(schedule, Rank{0}, bytes);

  // The largest is 3000, rounded to a multiple of the alignment.
  EXPECT_EQ(plan.at_peak.at(BufferKind::parameters), (Bytes{2 * round_up(3000, buffer_alignment)}));
}

/// Where on the host each offloaded buffer lies, and that none lies on another.
Bytes highest_end_on_host(const Schedule& schedule, const RankPlan& plan, const PerStage<StageBytes>& bytes) {
  std::map<SymbolicBuffer, PlannedBuffer> live;
  Bytes highest;
  for (const PlannedAction& planned : plan.actions) {
    const auto op = planned.action.op;
    if (op != Op::offload_activations && op != Op::reload_activations) continue;
    const SymbolicBuffer buffer = *moved_by(schedule, {plan.rank, planned.action});
    const Bytes size = bytes[buffer.stage][static_cast<std::size_t>(buffer.kind)];
    if (op == Op::reload_activations) {
      EXPECT_EQ(live.at(buffer).offset, planned.host_offset);
      live.erase(buffer);
      continue;
    }
    const Bytes end = planned.host_offset + size;
    for (const auto& [key, other] : live) {
      EXPECT_TRUE(end <= other.offset || other.offset + other.bytes <= planned.host_offset);
    }
    live[buffer] = {buffer, planned.host_offset, size};
    highest = std::max(highest, end);
  }
  EXPECT_TRUE(live.empty());
  return highest;
}

TEST(PlanRank, HasAPlaceOnTheHostForWhatIsOffloadedAndWaitsUntilItIsFree) {
  CompletionOptions options;
  options.offload_nearest = 1;
  const Schedule schedule =
      complete(generate("svpp", {.pipeline = 2, .virtual_stages = 2, .micro_batches = 3, .slices = 4}), options);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto bytes = random_bytes(4, seed);
    for (const Rank rank : all<Rank>(2)) {
      const RankPlan plan = plan_alone(schedule, rank, bytes);

      const Bytes end = highest_end_on_host(schedule, plan, bytes);
      EXPECT_GE(plan.host_peak, end);
      EXPECT_LT(plan.host_peak, end + Bytes{buffer_alignment});
    }
  }
  // A second step of the list takes what the first has freed: some OFFLOAD_A waits for a RELOAD_A.
  const RankPlan plan = plan_alone(schedule, Rank{0}, uniform_bytes(4, 256));
  const auto waits_for_reload = [&](const PlannedAction& planned) {
    return planned.action.op == Op::offload_activations &&
           std::any_of(planned.waits_for.begin(), planned.waits_for.end(), [&](std::int32_t position) {
             return plan.actions[static_cast<std::size_t>(position)].action.op == Op::reload_activations;
           });
  };
  EXPECT_TRUE(std::any_of(plan.actions.begin(), plan.actions.end(), waits_for_reload));
  EXPECT_TRUE(validate(schedule, memory_edges(plan)).empty());
}

TEST(PlanRank, IsTheSameEachTime) {
  const Schedule schedule = complete(interleaved({.pipeline = 2, .virtual_stages = 2, .micro_batches = 4}), {});
  const auto offsets = [&] {
    std::vector<std::int64_t> result;
    for (const PlannedAction& action : plan_alone(schedule, Rank{1}, random_bytes(4, 5)).actions) {
      for (const PlannedBuffer& planned : action.takes) result.push_back(planned.offset.value);
    }
    return result;
  };

  EXPECT_EQ(offsets(), offsets());
}

TEST(PlanRank, ListsEveryActionInOrder) {
  const Schedule schedule = complete(one_f_one_b({.pipeline = 2, .virtual_stages = 1, .micro_batches = 2}), {});

  const RankPlan plan = plan_alone(schedule, Rank{0}, uniform_bytes(2, 256));

  ASSERT_EQ(plan.actions.size(), schedule.actions[Rank{0}].size());
  for (std::size_t i = 0; i < plan.actions.size(); ++i) EXPECT_EQ(plan.actions[i].action, schedule.actions[Rank{0}][i]);
}

std::string refusal(const Schedule& schedule) {
  try {
    plan_alone(schedule, Rank{0}, uniform_bytes(schedule.most_stages(), 256));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    return error.what();
  }
  return "planned";
}

TEST(PlanRank, RefusesListsThatFreeWhatTheyDidNotTake) {
  Schedule schedule = complete(gpipe({.pipeline = 1, .virtual_stages = 1, .micro_batches = 1}), {});
  auto& list = schedule.actions[Rank{0}];

  list.erase(list.begin());
  EXPECT_THAT(refusal(schedule),
              HasSubstr("frees activations of stage 0, micro-batch 0, slice 0, which was not taken"));
  list = {{Op::forward, Stage{0}, MicroBatch{0}, Slice{0}}, {Op::forward, Stage{0}, MicroBatch{0}, Slice{0}}};
  EXPECT_THAT(refusal(schedule), HasSubstr("taken twice"));
  list.pop_back();
  EXPECT_THAT(refusal(schedule), HasSubstr("never freed"));
}

TEST(MostLive, OfInterleavedIsItsWarmUpAndOneMore) {
  for (int p = 1; p <= 4; ++p) {
    for (int m = 1; m <= 9; ++m) {
      for (int v = 2; v <= 3; ++v) {
        const Schedule schedule = complete(interleaved({p, v, m}), {});
        for (const Rank rank : all<Rank>(p)) {
          const int most = std::min(v * m, (v - 1) * p + 2 * (p - 1 - rank.value()) + 1);

          EXPECT_LE(most_live(schedule, rank, BufferKind::activations), most);
          if (m % p == 0) {
            EXPECT_EQ(most_live(schedule, rank, BufferKind::activations), most) << describe(schedule, rank);
          }
        }
      }
    }
  }
}

TEST(MostLive, CountsAtOnePlaceOfTheList) {
  const Schedule schedule = complete(one_f_one_b({.pipeline = 4, .virtual_stages = 1, .micro_batches = 8}), {});

  for (const Rank rank : all<Rank>(4)) EXPECT_EQ(most_live(schedule, rank, BufferKind::activations), 4 - rank.value());
  EXPECT_EQ(most_live(schedule, Rank{0}, BufferKind::input), 0);
}

}  // namespace
}  // namespace penstock
