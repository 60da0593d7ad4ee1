// SPDX-License-Identifier: Apache-2.0
#include "device/priced/priced_device.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.hpp"
#include "device/arena.hpp"
#include "device/factory.hpp"
#include "device/priced/wait.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Bytes gibibyte{std::int64_t{1} << 30};

// --- waits -----------------------------------------------------------------------------------------------------------

TEST(AWait, EndsNotBeforeItsDeadline) {
  for (int i = 0; i < 50; ++i) {
    const Seconds deadline = now() + Seconds{1e-4 * i};

    wait_until(deadline);

    EXPECT_GE(now(), deadline);
  }
}

TEST(AWait, EndsLittleAfterItsDeadline) {
  Seconds least_late{1};
  for (int i = 0; i < 50; ++i) {
    const Seconds deadline = now() + Seconds{1e-3};
    wait_until(deadline);
    least_late = std::min(least_late, now() - deadline);
  }

  // Linux lets sleeps of a thread that asked for nothing else end 50 us late; a busy machine some of them much more.
  EXPECT_LT(least_late.value, 500e-6);
}

TEST(AWait, EndsAtOnceAfterItsDeadline) {
  const Seconds begin = now();

  for (int i = 0; i < 1000; ++i) wait_until(begin - Seconds{1});

  EXPECT_LT((now() - begin).value, 0.1);  // a sleep of 50 us each would take half of that and more
}

TEST(AWait, SleepsAllTheWhile) {
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = cpu_seconds();

  wait_until(now() + Seconds{0.1});

  EXPECT_LT(cpu_seconds() - before, 0.01);
}

// --- memory ----------------------------------------------------------------------------------------------------------

std::int64_t peak_resident_kibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(ThePricedDevice, GivesAddressesForFarMoreThanTheMachineHas) {
  constexpr Bytes capacity = gibibyte * 1024;
  const std::int64_t before = peak_resident_kibibytes();
  const auto device = make_priced_device(capacity, {});
  std::byte* base = device->reserve(capacity);
  Arena arena{base, capacity};

  const std::byte* last = arena.take(capacity - gibibyte, gibibyte, "the last GiB");

  EXPECT_EQ(last - base, (capacity - gibibyte).value);
  EXPECT_EQ(arena.peak(), capacity);
  EXPECT_LT(peak_resident_kibibytes() - before, 1024);
}

TEST(ThePricedDeviceDeathTest, StopsTheProgramWhereItsMemoryIsTouched) {
  const auto device = make_priced_device(gibibyte, {});
  volatile std::byte* memory = device->reserve(gibibyte);

  // By the signal, or by a sanitizer that catches it.
  EXPECT_DEATH(memory[12345] = std::byte{1}, "");
}

TEST(ThePricedDevice, RefusesMoreThanItsCapacity) {
  const auto device = make_priced_device(gibibyte, {});

  try {
    device->reserve(gibibyte + Bytes{1});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("1073741825"), HasSubstr("memory.device")));
  }
}

TEST(ThePricedDevice, ReservesOnce) {
  const auto device = make_priced_device(gibibyte, {});
  device->reserve(Bytes{0});

  EXPECT_THROW(device->reserve(Bytes{0}), Error);
}

TEST(ThePricedDevice, HasNothingToCopy) {
  const auto device = make_priced_device(gibibyte, {});
  const auto queue = device->make_queue("to_device");
  std::byte* memory = device->reserve(gibibyte);
  std::byte host{};

  EXPECT_THROW(device->copy_to_device(*queue, {}, memory, &host, Bytes{1}), Error);
  EXPECT_THROW(device->copy_to_host(*queue, {}, &host, memory, Bytes{1}), Error);
}

TEST(ThePricedDevice, HasTheQueuesOfTheHostDevice) {
  const auto device = make_device("priced", gibibyte, {});
  const auto first = device->make_queue("first");
  const auto second = device->make_queue("second");
  std::vector<int> order;

  const Event one = first->submit({}, [&] {
    wait_until(now() + Seconds{2e-3});
    order.push_back(1);
  });
  second->submit({one}, [&] { order.push_back(2); }).wait();

  EXPECT_THAT(order, testing::ElementsAre(1, 2));
  EXPECT_THAT(device->description(), AllOf(HasSubstr("priced"), HasSubstr("1.00 GiB")));
}

}  // namespace
}  // namespace penstock
