// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_device.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include "base/error.hpp"
#include "device/completion.hpp"
#include "device/factory.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Device> device(Bytes capacity = Bytes{1 << 20}, DelayOptions delays = {}) {
  return make_host_device(capacity, delays);
}

/// The message of the Error with `code` that `function` throws.
template <class Function>
std::string error_of(ExitCode code, Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(AQueue, RunsWorkInOrderOfSubmission) {
  const auto host = device();
  const auto queue = host->make_queue("compute");
  std::vector<int> order;

  Event last;
  for (int i = 0; i < 100; ++i) last = queue->submit({}, [&order, i] { order.push_back(i); });
  last.wait();

  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

/// A queue that starts when all is submitted, and the order in which its pieces ran.
struct NumberedPieces {
  Event add(int number, std::vector<Event> after = {}) { return queue->submit(started(std::move(after)), run(number)); }
  Event add_early(int number, std::vector<Event> after = {}) {
    return queue->submit_early(started(std::move(after)), run(number));
  }
  void start() { all_submitted.succeed(now()); }

  Completion all_submitted;
  std::vector<int> order;
  std::unique_ptr<Device> host = device();
  std::unique_ptr<Queue> queue = host->make_queue("compute");

 private:
  std::vector<Event> started(std::vector<Event> after) const {
    after.insert(after.begin(), all_submitted.event());
    return after;
  }
  std::function<void()> run(int number) {
    return [this, number] { order.push_back(number); };
  }
};

TEST(AQueue, RunsEarlyWorkInOrderWhileItsNextPieceWaits) {
  NumberedPieces pieces;
  Completion gate;

  pieces.add(0);
  const Event waiting = pieces.add(1, {gate.event()});
  pieces.add(2);
  pieces.add_early(3);
  const Event early = pieces.add_early(4);
  const Event last = pieces.add(5);
  pieces.start();
  early.wait();
  EXPECT_FALSE(waiting.is_complete());
  gate.succeed(now());
  last.wait();

  EXPECT_THAT(pieces.order, testing::ElementsAre(0, 3, 4, 1, 2, 5));
}

TEST(AQueue, RunsEarlyWorkInItsPlaceIfNothingWaits) {
  NumberedPieces pieces;

  pieces.add(0);
  pieces.add_early(1);
  const Event last = pieces.add(2);
  pieces.start();
  last.wait();

  EXPECT_THAT(pieces.order, testing::ElementsAre(0, 1, 2));
}

TEST(AQueue, LetsNoWorkOvertakeEarlyWorkThatWaits) {
  NumberedPieces pieces;
  Completion gate;
  Completion later_gate;

  const Event waiting = pieces.add(0, {gate.event()});
  const Event early = pieces.add_early(1, {later_gate.event()});
  pieces.add_early(2);
  const Event last = pieces.add(3);
  pieces.start();
  gate.succeed(now());
  waiting.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  EXPECT_FALSE(early.is_complete());
  later_gate.succeed(now());
  last.wait();

  EXPECT_THAT(pieces.order, testing::ElementsAre(0, 1, 2, 3));
}

TEST(AQueue, FailsWhatWaitsIfEarlyWorkFails) {
  const auto host = device();
  const auto queue = host->make_queue("compute");
  Completion start;
  Completion never;

  const Event waiting = queue->submit({start.event(), never.event()}, [] {});
  queue->submit_early({start.event()}, [] { throw std::runtime_error{"early"}; });
  start.succeed(now());

  EXPECT_THAT([&] { waiting.wait(); }, testing::ThrowsMessage<std::runtime_error>("early"));
}

TEST(AQueue, ReturnsFromSubmitBeforeTheWorkEnds) {
  const auto host = device();
  const auto queue = host->make_queue("compute");
  Completion gate;

  const Event event = queue->submit({gate.event()}, [] {});

  EXPECT_FALSE(event.is_complete());
  gate.succeed(now());
  event.wait();
}

TEST(AQueue, WaitsForTheEventsOfOtherQueues) {
  const auto host = device();
  const auto first = host->make_queue("first");
  const auto second = host->make_queue("second");
  int value = 0;

  const Event written = first->submit({}, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    value = 7;
  });
  int seen = 0;
  const Event read = second->submit({written}, [&] { seen = value; });
  read.wait();

  EXPECT_EQ(seen, 7);
}

TEST(AQueue, RunsWorkOfDistinctQueuesAtTheSameTime) {
  const auto host = device();
  const auto first = host->make_queue("first");
  const auto second = host->make_queue("second");
  Completion from_first;
  Completion from_second;

  // Each piece waits, within its work, for the other to have begun.
  const Event one = first->submit({}, [&] {
    from_first.succeed(now());
    from_second.event().wait();
  });
  const Event two = second->submit({}, [&] {
    from_second.succeed(now());
    from_first.event().wait();
  });

  one.wait();
  two.wait();
}

TEST(AQueue, TellsWhenTheWorkItselfRan) {
  const auto host = device();
  const auto queue = host->make_queue("compute");
  Completion gate;
  Seconds began{};
  const Event event = queue->submit({gate.event()}, [&] {
    began = now();
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  });

  const Seconds released = now();
  gate.succeed(released);
  event.wait();

  EXPECT_GE(event.state()->started(), released);
  EXPECT_LE(event.state()->started(), began);
  EXPECT_GE(event.state()->finished() - event.state()->started(), Seconds{2e-3});
}

TEST(AQueue, CarriesTheFirstFailureToLaterWorkAndDependents) {
  const auto host = device();
  const auto first = host->make_queue("first");
  const auto second = host->make_queue("second");
  std::atomic<int> ran{0};
  Completion gate;

  const Event broken = first->submit({gate.event()}, [] { throw std::runtime_error{"first fault"}; });
  const Event later = first->submit({}, [&] {
    ++ran;
    throw std::logic_error{"never"};
  });
  const Event dependent = second->submit({broken}, [&] { ++ran; });
  const Event after_dependent = second->submit({}, [&] { ++ran; });
  gate.succeed(now());

  for (const Event& event : {broken, later, dependent, after_dependent}) {
    EXPECT_THROW(event.wait(), std::runtime_error);
    EXPECT_NE(event.state()->failure(), nullptr);
    EXPECT_TRUE(event.is_complete());
  }
  EXPECT_EQ(ran, 0);
}

TEST(AQueue, FailsWorkSubmittedAfterTheFailure) {
  const auto host = device();
  const auto queue = host->make_queue("compute");
  const Event broken = queue->submit({}, [] { fail(ExitCode::not_finite, "the loss is NaN"); });
  EXPECT_THROW(broken.wait(), Error);

  const Event later = queue->submit({}, [] {});

  EXPECT_THAT(error_of(ExitCode::not_finite, [&] { later.wait(); }), HasSubstr("NaN"));
}

TEST(AQueue, KeepsOtherQueuesWorkingAfterAFailure) {
  const auto host = device();
  const auto broken = host->make_queue("broken");
  const auto sound = host->make_queue("sound");
  EXPECT_THROW(broken->submit({}, [] { throw std::runtime_error{"fault"}; }).wait(), std::runtime_error);

  bool has_run = false;
  sound->submit({}, [&] { has_run = true; }).wait();

  EXPECT_TRUE(has_run);
}

TEST(AQueue, FinishesWhatWasSubmittedWhenDestroyed) {
  const auto host = device();
  auto queue = host->make_queue("compute");
  int count = 0;
  Event last;
  for (int i = 0; i < 50; ++i) {
    last = queue->submit({}, [&] {
      std::this_thread::sleep_for(std::chrono::microseconds{50});
      ++count;
    });
  }

  queue.reset();

  EXPECT_EQ(count, 50);
  EXPECT_TRUE(last.is_complete());
}

TEST(AQueue, EndsWhenDestroyedAfterWhatItWaitsForFailed) {
  const auto host = device();
  auto queue = host->make_queue("compute");
  std::optional<Completion> gate{std::in_place};
  const Event event = queue->submit({gate->event()}, [] {});

  gate.reset();  // dropped undecided: the event fails
  queue.reset();

  EXPECT_THROW(event.wait(), Error);
}

TEST(AQueue, ReleasesWhatTheWorkHoldsBeforeItIsComplete) {
  const auto host = device();
  const auto queue = host->make_queue("compute");
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;

  queue->submit({}, [held = std::move(held)] {}).wait();

  EXPECT_TRUE(watch.expired());
}

TEST(AQueue, NamesItsThread) {
  const auto host = device();
  const auto queue = host->make_queue("a_name_longer_than_linux_keeps");
  std::array<char, 16> name{};

  queue->submit({}, [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }).wait();

  EXPECT_STREQ(name.data(), "a_name_longer_t");
}

TEST(AQueue, SleepsWhileItWaits) {
  const auto host = device();
  const auto idle = host->make_queue("idle");
  const auto blocked = host->make_queue("blocked");
  Completion gate;
  const Event event = blocked->submit({gate.event()}, [] {});
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };

  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  const double used = cpu_seconds() - before;

  gate.succeed(now());
  event.wait();
  EXPECT_LT(used, 0.02);  // a spinning thread would use 0.1
}

/// A chain over three queues whose result depends on the order of every step: x <- 3 x + i, modulo 2^64.
std::uint64_t result_of_chain(DelayOptions delays) {
  const auto host = device(Bytes{1 << 20}, delays);
  const std::array queues{host->make_queue("a"), host->make_queue("b"), host->make_queue("c")};
  std::uint64_t value = 1;
  Event last;
  for (std::uint64_t i = 0; i < 60; ++i) {
    last = queues[(i * i) % 3]->submit({last}, [&value, i] { value = 3 * value + i; });
  }
  last.wait();
  return value;
}

TEST(Delays, ChangeNoResult) {
  const auto expected = result_of_chain({});

  for (std::uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(result_of_chain({seed, Seconds{200e-6}}), expected);
}

TEST(Delays, AreTakenBeforeThePiece) {
  const auto host = device(Bytes{0}, {1, Seconds{2e-3}});
  const auto queue = host->make_queue("compute");
  const Seconds begin = now();
  double work = 0;

  Event last;
  for (int i = 0; i < 20; ++i) {
    last = queue->submit({}, [] {});
    last.wait();
    work += (last.state()->finished() - last.state()->started()).value;
  }

  // 20 draws from [0, 2 ms): 20 ms on average, standard deviation 2.6 ms; the pieces themselves do nothing.
  EXPECT_GT((now() - begin).value, 10e-3);
  EXPECT_LT(work, 5e-3);
}

TEST(HostDevice, CopiesThroughItsMemory) {
  const auto host = device();
  std::byte* memory = host->reserve(Bytes{4096});
  const auto in = host->make_queue("to_device");
  const auto out = host->make_queue("to_host");
  std::array<std::byte, 300> from{};
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7);
  std::array<std::byte, 300> to{};

  const Event there = host->copy_to_device(*in, {}, memory + 100, from.data(), Bytes{300});
  const Event back = host->copy_to_host(*out, {there}, to.data(), memory + 100, Bytes{300});
  back.wait();

  EXPECT_EQ(from, to);
}

TEST(HostDevice, CopiesNothingFromNowhere) {
  const auto host = device();
  const auto queue = host->make_queue("to_device");

  host->copy_to_device(*queue, {}, nullptr, nullptr, Bytes{0}).wait();

  EXPECT_THROW(host->copy_to_device(*queue, {}, nullptr, nullptr, Bytes{-1}), Error);
}

TEST(HostDevice, ReservesAlignedMemoryThatHoldsNaNsWhereAsked) {
  const auto host = make_host_device(Bytes{3 << 20}, {}, InitialContents::not_a_number);
  std::byte* memory = host->reserve(Bytes{(3 << 20) - 4});

  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (std::uintptr_t{2} << 20), 0U);
  float last = 0;
  std::memcpy(&last, memory + (3 << 20) - 8, sizeof last);
  EXPECT_TRUE(std::isnan(last));
}

TEST(HostDevice, RefusesMoreThanItsCapacityNamingBothSizes) {
  const auto host = device(Bytes{1 << 20});

  const auto text = error_of(ExitCode::does_not_fit, [&] { host->reserve(Bytes{(1 << 20) + 1}); });

  EXPECT_THAT(text, AllOf(HasSubstr("1048577"), HasSubstr("1048576"), HasSubstr("memory.device")));
}

TEST(HostDevice, RefusesWhatTheMachineCannotGive) {
  constexpr Bytes absurd{std::int64_t{1} << 60};
  const auto host = device(Bytes{std::numeric_limits<std::int64_t>::max()});

  EXPECT_THAT(error_of(ExitCode::does_not_fit, [&] { host->reserve(absurd); }), HasSubstr("Cannot allocate memory"));
  EXPECT_THAT(error_of(ExitCode::does_not_fit, [&] { host->reserve(Bytes{std::numeric_limits<std::int64_t>::max()}); }),
              HasSubstr("Cannot allocate memory"));
}

TEST(HostDevice, ReservesOnce) {
  const auto host = device();
  host->reserve(Bytes{0});

  EXPECT_THROW(host->reserve(Bytes{16}), Error);
}

TEST(HostDevice, DescribesItself) {
  EXPECT_EQ(device(Bytes{std::int64_t{2} << 30})->description(), "host, 2.00 GiB");
}

TEST(MakeDevice, KnowsTheHost) {
  EXPECT_THAT(make_device("host", Bytes{1024}, {})->description(), HasSubstr("host"));
}

TEST(MakeDevice, SaysWhatToDoWithoutCuda) {
  const auto text = error_of(ExitCode::bad_input, [] { make_device("cuda", Bytes{1024}, {}); });

  EXPECT_THAT(text, AllOf(HasSubstr("built without CUDA"), HasSubstr("device: {kind: host}")));
}

TEST(MakeDevice, ListsTheKindsForAnUnknownOne) {
  const auto text = error_of(ExitCode::bad_input, [] { make_device("gpu", Bytes{1024}, {}); });

  EXPECT_THAT(text, AllOf(HasSubstr("gpu"), HasSubstr("host")));
}

}  // namespace
}  // namespace penstock
