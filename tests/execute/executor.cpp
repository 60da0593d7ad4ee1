// SPDX-License-Identifier: Apache-2.0
#include "execute/executor.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/rank_on_host.hpp"
#include "schedule/semantics.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using test::RankOnHost;
using test::schedule_of;
using test::ScheduleCase;

constexpr DelayOptions delays{7, Seconds{0.0004}};

std::string to_text(const ScheduleCase& of) {
  return fmt::format("{} p={} v={} m={}{}{}{}", of.kind, of.generator.pipeline, of.generator.virtual_stages,
                     of.generator.micro_batches, of.recompute ? " recompute" : "", of.split ? " split" : "",
                     of.tied ? " tied" : "");
}

/// Calls body(case, rank) for all ranks of all cases.
template <class Body>
void for_all_ranks(const Body& body) {
  for (const auto& of : test::schedule_cases()) {
    SCOPED_TRACE(to_text(of));
    const auto schedule = schedule_of(of);
    for (const Rank rank : all<Rank>(schedule.shape.ranks)) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      body(schedule, rank);
    }
  }
}

/// The message of the Error `internal` that `function` throws.
template <class Function>
std::string fault_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// --- order
// --------------------------------------------------------------------------------------------------------------

TEST(AnExecutor, RunsEachLaneInListOrder) {
  for_all_ranks([](const Schedule& schedule, Rank rank) {
    RankOnHost host{schedule, rank};

    host.executor->run(1, nullptr);

    EXPECT_EQ(host.work.computed, host.actions_of(Lane::compute));
    EXPECT_EQ(host.work.on_host, host.actions_of(Lane::cpu));
  });
}

TEST(AnExecutor, RunsTheSameListAgain) {
  RankOnHost host{schedule_of({"gpipe", {1, 2, 3}})};

  for (int step = 1; step <= 3; ++step) host.executor->run(step, nullptr);

  EXPECT_EQ(host.work.computed.size(), 3 * host.actions_of(Lane::compute).size());
  EXPECT_EQ(host.executor->completed(), static_cast<std::int64_t>(3 * host.plan.actions.size()));
}

/// Every predecessor that semantics or the plan name ended before the action began.
void expect_needs_kept(const RankOnHost& host, const Timeline& trace) {
  const auto& list = host.plan.actions;
  ASSERT_EQ(trace.spans.size(), list.size());
  std::map<Action, const Span*> span_of;
  for (const auto& span : trace.spans) span_of[span.action] = &span;
  const ScheduleIndex index{host.schedule};
  for (const auto& span : trace.spans) {
    for (const auto& need : needs(index, {host.plan.rank, span.action})) {
      if (need.rank != host.plan.rank) continue;
      EXPECT_LE(span_of.at(need.action)->end, span.start)
          << to_text(span.action) << " did not wait for " << to_text(need.action);
    }
  }
  for (std::size_t position = 0; position < list.size(); ++position) {
    for (const auto before : list[position].waits_for) {
      EXPECT_LE(trace.spans[static_cast<std::size_t>(before)].end, trace.spans[position].start)
          << to_text(list[position].action) << " took memory before it was free";
    }
  }
}

TEST(AnExecutor, WaitsForNeedsAndMemoryUnderDelays) {
  for (const auto& of : test::schedule_cases()) {
    SCOPED_TRACE(to_text(of));
    RankOnHost host{schedule_of(of), Rank{of.generator.pipeline - 1}, delays};

    expect_needs_kept(host, host.traced_run());
  }
}

/// Small numbers in buffers, as the stages of a model would pass them on.
std::int64_t get(const std::byte* data) {
  std::int64_t value = -1;
  if (data != nullptr) std::memcpy(&value, data, sizeof value);
  return value;
}
void put(std::byte* data, std::int64_t value) {
  std::memcpy(data, &value, sizeof value);
}

/// Forward passes on 10 x its input + its parameter; backward checks what was kept, and passes on its gradient + 1.
class Arithmetic {
 public:
  explicit Arithmetic(RankOnHost& host) : host_{host} {
    host.work.on_compute = [this](const Action& action, const StageBuffers& buffers) { compute(action, buffers); };
    host.work.on_cpu = [this](const Action& action) { cpu(action); };
  }

  std::vector<std::string> faults;
  std::vector<std::int64_t> reduced;  // gradients of the stages, in order of REDUCE

 private:
  bool is_first(const Action& action) const { return action.stage == Stage{0}; }
  bool is_last(const Action& action) const { return action.stage == host_.schedule.last_stage(); }
  std::int64_t input(const Action& action, const StageBuffers& buffers) const {
    return is_first(action) ? action.micro_batch.value() : get(buffers.input);
  }
  void compare(const Action& action, const char* what, std::int64_t seen, std::int64_t expected) {
    if (seen != expected)
      faults.push_back(fmt::format("{}: {} {} instead of {}", to_text(action), what, seen, expected));
  }

  void compute(const Action& action, const StageBuffers& buffers) {
    put(buffers.workspace, -77);
    const bool forward = action.op == Op::forward;
    if (forward || action.op == Op::recompute) {
      if (buffers.activations != nullptr)
        put(buffers.activations, input(action, buffers) * 10 + get(buffers.parameters));
      if (buffers.logits != nullptr) put(buffers.logits, action.micro_batch.value());
      if (forward && !is_last(action)) put(buffers.output, input(action, buffers) * 10 + get(buffers.parameters));
      return;
    }
    compare(action, "kept", get(buffers.activations), expected_forward(action));
    if (action.op == Op::backward_weight) {
      compare(action, "operand", get(buffers.weight_operands), action.micro_batch.value());
    } else {
      backward(action, buffers);
    }
    if (action.op != Op::backward_input) {
      const bool fresh = action.micro_batch == MicroBatch{0};
      put(buffers.gradients, (fresh ? 0 : get(buffers.gradients)) + 1 + action.micro_batch.value());
    }
  }

  void backward(const Action& action, const StageBuffers& buffers) {
    const std::int64_t depth = host_.schedule.last_stage().value() - action.stage.value();
    if (is_last(action)) compare(action, "logits", get(buffers.logits), action.micro_batch.value());
    const std::int64_t gradient = is_last(action) ? 100 * action.micro_batch.value() : get(buffers.output_gradient);
    compare(action, "gradient", gradient, 100 * action.micro_batch.value() + depth);
    if (!is_first(action)) put(buffers.input_gradient, gradient + 1);
    if (action.op == Op::backward_input) put(buffers.weight_operands, action.micro_batch.value());
  }

  /// What the forward of this micro-batch gives at this stage, with the parameters of this step.
  std::int64_t expected_forward(const Action& action) const {
    std::int64_t value = action.micro_batch.value();
    for (std::int32_t stage = 0; stage <= action.stage.value(); ++stage) value = value * 10 + parameter_;
    return value;
  }

  void cpu(const Action& action) {
    if (action.op == Op::reduce) reduced.push_back(get(host_.work.host_gradients(action.stage).data()));
    if (action.op == Op::validate) return;
    if (action.op == Op::step) put(host_.work.host_parameters(action.stage).data(), parameter_ + 1);
  }

 public:
  void next_step() { ++parameter_; }
  /// What the device's parameters hold before the first step.
  static constexpr std::int64_t initial = 3;

 private:
  RankOnHost& host_;
  std::int64_t parameter_ = initial;
};

void set_initial_parameters(RankOnHost& host) {
  // The first step runs for its FETCH_F alone.
  for (const Stage stage : all<Stage>(host.schedule.shape.stages)) {
    put(host.work.host_parameters(stage).data(), Arithmetic::initial);
  }
  host.executor->run(0, nullptr);
}

TEST(AnExecutor, CarriesValuesFromActionToActionUnderDelays) {
  for (const auto& of : test::schedule_cases()) {
    if (of.generator.pipeline > 1) continue;
    SCOPED_TRACE(to_text(of));
    RankOnHost host{schedule_of(of), Rank{0}, delays};
    set_initial_parameters(host);
    Arithmetic arithmetic{host};

    for (int step = 1; step <= 2; ++step, arithmetic.next_step()) host.executor->run(step, nullptr);

    EXPECT_THAT(arithmetic.faults, testing::IsEmpty());
    const std::int64_t m = of.generator.micro_batches;
    EXPECT_THAT(arithmetic.reduced, testing::Each(m * (m + 1) / 2));
    EXPECT_EQ(arithmetic.reduced.size(), static_cast<std::size_t>(2 * host.schedule.shape.stages));
  }
}

// --- failures
// -----------------------------------------------------------------------------------------------------------

TEST(AnExecutor, ReportsWhatAComputeActionThrows) {
  RankOnHost host{schedule_of({"1f1b", {1, 1, 5}})};
  host.work.on_compute = [](const Action& action, const StageBuffers&) {
    if (to_text(action) == "0F2") throw std::runtime_error{"the forward of 2"};
  };

  EXPECT_THAT([&] { host.executor->run(1, nullptr); }, testing::ThrowsMessage<std::runtime_error>("the forward of 2"));

  host.executor.reset();  // waits for the rest of the list, which is not run
  EXPECT_EQ(to_text(host.work.computed.back()), "0F2");
  EXPECT_THAT(host.work.on_host, testing::IsEmpty());
}

TEST(AnExecutor, ReportsWhatACpuActionThrows) {
  RankOnHost host{schedule_of({"gpipe", {1, 2, 3}}), Rank{0}, delays};
  host.work.on_cpu = [](const Action& action) {
    if (action.op == Op::validate) fail(ExitCode::not_finite, "the norm");
  };

  EXPECT_THAT([&] { host.executor->run(1, nullptr); }, testing::ThrowsMessage<Error>("the norm"));

  host.executor.reset();
  EXPECT_EQ(host.work.on_host.back().op, Op::validate);
}

TEST(AnExecutor, EndsCleanlyAfterAFailureOnAnyAction) {
  const auto schedule = schedule_of({"gpipe", {1, 2, 2}, true, true});
  for (const auto& failing : schedule.actions[Rank{0}]) {
    const Lane lane = lane_of(failing.op);
    if (lane != Lane::compute && lane != Lane::cpu) continue;
    SCOPED_TRACE(to_text(failing));
    RankOnHost host{schedule};
    const auto throw_at = [&](const Action& action) {
      if (action == failing) throw std::runtime_error{"here"};
    };
    host.work.on_compute = [&](const Action& action, const StageBuffers&) { throw_at(action); };
    host.work.on_cpu = throw_at;

    EXPECT_THAT([&] { host.executor->run(1, nullptr); }, testing::ThrowsMessage<std::runtime_error>("here"));
  }
}

TEST(AnExecutor, RefusesAHostCopyThatIsLongerThanItsBuffer) {
  const auto schedule = schedule_of({"gpipe", {1, 1, 1}});
  auto plan = test::plan_of(schedule, Rank{0});
  for (auto& buffer : plan.persistent) {
    if (buffer.buffer.kind == BufferKind::gradients) buffer.bytes = Bytes{buffer_alignment};
  }
  RankOnHost host{schedule, plan};

  EXPECT_THAT(fault_of([&] { host.executor->run(1, nullptr); }),
              HasSubstr("0OFFLOAD_G copies 512 bytes, but its device buffer has 256"));
}

// --- memory
// -------------------------------------------------------------------------------------------------------------

TEST(AnExecutor, ReachesThePlannedPeakToTheByte) {
  for_all_ranks([](const Schedule& schedule, Rank rank) {
    RankOnHost host{schedule, rank};

    host.executor->run(1, nullptr);

    EXPECT_EQ(host.arena.peak(), host.plan.peak);
  });
}

TEST(AnExecutor, FailsInAnArenaOneBufferTooSmall) {
  for_all_ranks([](const Schedule& schedule, Rank rank) {
    const auto plan = test::plan_of(schedule, rank);
    RankOnHost host{schedule, plan, {}, plan.peak - Bytes{test::test_buffer_bytes}};

    EXPECT_THAT(fault_of([&] { host.executor->run(1, nullptr); }), HasSubstr("beyond the capacity"));
  });
}

/// Puts buffers of the list one buffer lower than planned, one at a time; each must be refused, but where the place
/// happens to be free (then nothing is overwritten either).
TEST(AnExecutor, FailsWhereAPlanPutsABufferOnALiveOne) {
  const auto schedule = schedule_of({"gpipe", {2, 2, 4}});
  const auto plan = test::plan_of(schedule, Rank{1});
  std::size_t refused = 0;
  std::size_t takes = 0;
  for (std::size_t position = 0; position < plan.actions.size(); ++position) {
    if (plan.actions[position].takes.empty()) continue;
    ++takes;
    auto wrong = plan;
    auto& taken = wrong.actions[position].takes.front();
    taken.offset = taken.offset - Bytes{test::test_buffer_bytes};
    RankOnHost host{schedule, wrong};
    try {
      host.executor->run(1, nullptr);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("overlaps"));
      ++refused;
    }
  }
  // First fit: the lower place is hardly ever free.
  EXPECT_GT(takes, 20U);
  EXPECT_GE(refused, takes * 3 / 4);
}

TEST(AnExecutor, RefusesAPlanThatLacksABuffer) {
  const auto schedule = schedule_of({"1f1b", {2, 1, 2}});
  auto plan = test::plan_of(schedule, Rank{0});
  const auto first = std::find_if(plan.actions.begin(), plan.actions.end(),
                                  [](const PlannedAction& action) { return action.action.op == Op::forward; });
  first->takes.clear();

  EXPECT_THAT(fault_of([&] { RankOnHost{schedule, plan}; }), HasSubstr("is used where it is not live"));
}

TEST(AnExecutor, RefusesAListWhoseActionsStandBeforeTheirNeeds) {
  auto schedule = schedule_of({"gpipe", {1, 1, 1}});
  const auto plan = test::plan_of(schedule, Rank{0});
  auto wrong = plan;
  const auto offload = std::find_if(wrong.actions.begin(), wrong.actions.end(), [](const PlannedAction& action) {
    return action.action.op == Op::offload_gradients;
  });
  std::rotate(wrong.actions.begin(), offload, offload + 1);

  EXPECT_THAT(fault_of([&] {
                RankOnHost{schedule, wrong};
              }),
              HasSubstr("0OFFLOAD_G needs 0B0, which is not before it in the list of rank 0"));
}

// --- traces
// -------------------------------------------------------------------------------------------------------------

TEST(AnExecutor, TracesEveryActionOnce) {
  for_all_ranks([](const Schedule& schedule, Rank rank) {
    RankOnHost host{schedule, rank};
    const Seconds before = now();

    const auto trace = host.traced_run(12);

    ASSERT_EQ(trace.spans.size(), host.plan.actions.size());
    for (std::size_t i = 0; i < trace.spans.size(); ++i) {
      const auto& span = trace.spans[i];
      EXPECT_EQ(span.action, host.plan.actions[i].action);
      EXPECT_EQ(span.step, 12);
      EXPECT_EQ(span.rank, rank.value());
      EXPECT_EQ(span.lane, lane_of(span.action.op));
      EXPECT_LE(before, span.start);
      EXPECT_LE(span.start, span.end);
      EXPECT_LE(span.end, now());
      const auto peer = peer_of(schedule, span.action);
      EXPECT_EQ(span.peer, peer ? peer->value() : -1);
      const bool moves = span.lane != Lane::compute && span.lane != Lane::cpu;
      EXPECT_EQ(span.bytes.value, moves ? test::test_buffer_bytes : 0);
    }
  });
}

TEST(AnExecutor, SamplesMemoryWheneverItChanges) {
  for_all_ranks([](const Schedule& schedule, Rank rank) {
    RankOnHost host{schedule, rank};
    std::size_t changes = 0;
    for (const auto& action : host.plan.actions) changes += action.takes.size() + action.frees.size();

    const auto trace = host.traced_run(3);

    ASSERT_EQ(trace.memory.size(), changes);
    EXPECT_TRUE(std::is_sorted(trace.memory.begin(), trace.memory.end(),
                               [](const MemorySample& a, const MemorySample& b) { return a.time < b.time; }));
    for (const auto& sample : trace.memory) {
      EXPECT_EQ(sample.step, 3);
      EXPECT_EQ(sample.rank, rank.value());
      EXPECT_GE(sample.in_use, host.plan.persistent_bytes);
      EXPECT_LE(sample.in_use, host.plan.peak);
    }
    EXPECT_EQ(trace.memory.back().in_use, host.plan.persistent_bytes);
  });
}

TEST(AnExecutor, MeasuresHowLongTheComputeLaneIsBusy) {
  RankOnHost host{schedule_of({"1f1b", {1, 1, 3}})};
  host.work.on_compute = [](const Action&, const StageBuffers&) {
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  };

  const auto trace = host.traced_run();

  Seconds sum{0};
  for (const auto& span : trace.spans) {
    if (span.lane == Lane::compute) sum += span.end - span.start;
  }
  EXPECT_DOUBLE_EQ(host.executor->compute_busy().value, sum.value);
  EXPECT_GE(sum.value, 6 * 0.002);
}

// --- kills
// --------------------------------------------------------------------------------------------------------------

/// Two steps of the rank; it tells on standard error which compute actions it has begun.
void run_to_kill(const Schedule& schedule, Rank rank, const KillPlace& kill) {
  RankOnHost host{schedule, rank};
  host.work.on_compute = [](const Action& action, const StageBuffers&) { fmt::print(stderr, "{} ", to_text(action)); };
  host.executor.emplace(
      host.schedule, host.plan,
      ExecutorResources{&host.lanes, host.device.get(), &host.arena, host.base, &host.transport, &host.work, kill});
  for (const std::int32_t step : {1, 2}) {
    fmt::print(stderr, "step {}: ", step);
    host.executor->run(step, nullptr);
  }
}

/// What the rank has told when it comes to the action at `position` in its second step, if that is a compute action.
std::string told_before(const RankPlan& plan, std::size_t position) {
  std::string whole;
  std::string before;
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const Action& action = plan.actions[i].action;
    const bool is_told =
        lane_of(action.op) == Lane::compute && action.op != Op::evict_forward && action.op != Op::evict_backward;
    const std::string text = is_told ? to_text(action) + " " : "";
    whole += text;
    if (i < position) before += text;
  }
  return "step 1: " + whole + "step 2: " + before;
}

TEST(AnExecutorThatIsKilled, DiesInTheStepAtTheTurnOfTheAction) {
  const auto schedule = complete(interleaved({.pipeline = 2, .virtual_stages = 2, .micro_batches = 2}),
                                 {.steps_wait = StepsWait::speculative, .stream_parameters = true});
  const Rank rank{1};
  const RankPlan plan = test::plan_of(schedule, rank);
  for (std::size_t position = 0; position < plan.actions.size(); ++position) {
    const Action& action = plan.actions[position].action;
    SCOPED_TRACE(to_text(action));
    const bool is_told = lane_of(action.op) == Lane::compute;

    EXPECT_EXIT(run_to_kill(schedule, rank, {2, action}), testing::KilledBySignal(SIGKILL),
                is_told ? testing::Matcher<const std::string&>{testing::Eq(told_before(plan, position))}
                        : testing::Matcher<const std::string&>{HasSubstr("step 2: ")});
  }
}

// --- pending
// ------------------------------------------------------------------------------------------------------------

TEST(AnExecutor, DoesNotCountAsBusyWhatActionsWaitedForOtherRanks) {
  RankOnHost host{schedule_of({"1f1b", {1, 1, 3}})};
  host.work.on_compute = [](const Action&, const StageBuffers&) {
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  };
  host.work.waited = {1e-3};

  const auto trace = host.traced_run();

  Seconds lengths{0};
  for (const auto& span : trace.spans) {
    EXPECT_EQ(span.waited.value, span.lane == Lane::compute ? 1e-3 : 0) << to_text(span.action);
    if (span.lane == Lane::compute) lengths += span.end - span.start;
  }
  EXPECT_NEAR(host.executor->compute_busy().value, lengths.value - 6e-3, 1e-9);  // three F, three B
}

/// A rank whose compute lane stands at its third action until it is let go.
class StandingRank {
 public:
  StandingRank() : host_{schedule_of({"gpipe", {1, 2, 6}})} {
    host_.work.on_compute = [this](const Action&, const StageBuffers&) {
      if (host_.work.computed.size() != 3) return;
      stands_.set_value();
      go_.get_future().wait();
    };
    runner_ = std::async(std::launch::async, [this] { host_.executor->run(1, nullptr); });
    stands_.get_future().wait();
    // The callbacks of what is complete follow its completion.
    while (host_.executor->completed() < 2) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  void let_go() {
    go_.set_value();
    runner_.get();
  }
  const Executor& executor() const { return *host_.executor; }
  std::size_t actions() const { return host_.plan.actions.size(); }

 private:
  RankOnHost host_;
  std::promise<void> stands_;
  std::promise<void> go_;
  std::future<void> runner_;
};

TEST(AnExecutor, TellsWhatIsPendingWhileItRuns) {
  StandingRank rank;
  // The list may still be being issued: look until it is.
  std::string text = rank.executor().pending();
  while (std::count(text.begin(), text.end(), ',') < 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    text = rank.executor().pending();
  }

  EXPECT_THAT(text, StartsWith("0F2 (compute lane), 0F3 (compute lane)"));
  EXPECT_EQ(std::count(text.begin(), text.end(), ','), 5) << text;
  EXPECT_EQ(rank.executor().completed(), 2);
  rank.let_go();
  EXPECT_EQ(rank.executor().pending(), "");
  EXPECT_EQ(rank.executor().completed(), static_cast<std::int64_t>(rank.actions()));
}

TEST(AnExecutor, AnswersAnotherThreadAllTheTime) {
  RankOnHost host{schedule_of({"1f1b", {1, 1, 20}})};
  std::atomic<bool> done{false};
  std::int64_t last = 0;
  std::thread asking{[&] {
    while (!done.load()) {
      EXPECT_LT(host.executor->pending().size(), 1000U);
      const auto completed = host.executor->completed();
      EXPECT_GE(completed, last);
      last = completed;
      std::this_thread::yield();
    }
  }};

  for (int step = 0; step < 10; ++step) host.executor->run(step, nullptr);
  done.store(true);
  asking.join();

  EXPECT_EQ(host.executor->completed(), static_cast<std::int64_t>(10 * host.plan.actions.size()));
}

}  // namespace
}  // namespace penstock
