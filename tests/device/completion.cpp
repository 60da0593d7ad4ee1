// SPDX-License-Identifier: Apache-2.0
#include "device/completion.hpp"

#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace penstock {
namespace {

std::exception_ptr some_failure() {
  return std::make_exception_ptr(std::runtime_error{"a disk is full"});
}

TEST(AnEvent, IsCompleteWhenDefaultConstructed) {
  const Event event;

  EXPECT_TRUE(event.is_complete());
  event.wait();
}

TEST(ACompletion, CompletesItsEventWithItsTimes) {
  Completion completion;
  const Event event = completion.event();
  EXPECT_FALSE(event.is_complete());

  const Seconds started = now();
  completion.succeed(started);

  event.wait();
  EXPECT_TRUE(event.is_complete());
  EXPECT_EQ(event.state()->started(), started);
  EXPECT_GE(event.state()->finished(), started);
  EXPECT_EQ(event.state()->failure(), nullptr);
}

TEST(ACompletion, WakesAllThreadsThatWait) {
  Completion completion;
  int value = 0;
  std::atomic<int> seen{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([event = completion.event(), &value, &seen] {
      event.wait();
      seen += value;
    });
  }

  value = 1;  // what is written before succeed() is seen after wait()
  completion.succeed(now());
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(seen, 4);
}

TEST(ACompletion, RethrowsItsFailureAtEveryWait) {
  Completion completion;
  const Event event = completion.event();

  completion.fail(some_failure());

  EXPECT_TRUE(event.is_complete());
  EXPECT_THROW(event.wait(), std::runtime_error);
  EXPECT_THROW(event.wait(), std::runtime_error);
  EXPECT_NE(event.state()->failure(), nullptr);
}

TEST(ACompletion, FailsItsEventWhenDroppedUndecided) {
  std::optional<Completion> completion{std::in_place};
  const Event dropped = completion->event();
  completion.reset();
  EXPECT_THROW(dropped.wait(), Error);

  Completion other;
  const Event replaced = other.event();
  other = Completion{};
  EXPECT_THROW(replaced.wait(), Error);
  EXPECT_FALSE(other.event().is_complete());
}

TEST(ACompletion, MovesWithItsEvent) {
  Completion first;
  const Event event = first.event();

  Completion second{std::move(first)};
  second.succeed(now());

  event.wait();
}

TEST(ACompletion, RefusesToBeDecidedTwice) {
  Completion completion;
  completion.succeed(now());

  EXPECT_THROW(completion.succeed(now()), Error);
  EXPECT_THROW(completion.fail(some_failure()), Error);
  completion.event().wait();
}

TEST(OnComplete, CallsOnceAfterCompletionAndAtOnceWhenLate) {
  Completion completion;
  const Event event = completion.event();
  int calls = 0;
  event.state()->on_complete([&] { ++calls; });
  event.state()->on_complete([&] { calls += 10; });
  EXPECT_EQ(calls, 0);

  completion.succeed(now());
  EXPECT_EQ(calls, 11);

  event.state()->on_complete([&] { calls += 100; });
  EXPECT_EQ(calls, 111);
}

TEST(OnComplete, CallsAfterAFailureToo) {
  Completion completion;
  bool is_called = false;
  completion.event().state()->on_complete([&] { is_called = true; });

  completion.fail(some_failure());

  EXPECT_TRUE(is_called);
}

TEST(OnComplete, LetsACallbackAskTheEventAndAddAnother) {
  Completion completion;
  const Event event = completion.event();
  std::vector<std::string> calls;
  event.state()->on_complete([&] {
    calls.emplace_back(event.is_complete() ? "complete" : "incomplete");
    event.wait();
    event.state()->on_complete([&] { calls.emplace_back("inner"); });
  });

  completion.succeed(now());

  EXPECT_THAT(calls, testing::ElementsAre("complete", "inner"));
}

TEST(OnComplete, LosesNoCallWhenThreadsRace) {
  for (int round = 0; round < 200; ++round) {
    Completion completion;
    const Event event = completion.event();
    std::atomic<int> calls{0};
    std::thread registering{[&] {
      for (int i = 0; i < 10; ++i) event.state()->on_complete([&] { ++calls; });
    }};
    completion.succeed(now());
    registering.join();
    ASSERT_EQ(calls, 10);
  }
}

}  // namespace
}  // namespace penstock
