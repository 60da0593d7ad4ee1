// SPDX-License-Identifier: Apache-2.0
#include "execute/watchdog.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace penstock {
namespace {

using std::chrono::milliseconds;

TEST(AWatchdog, FiresOnceWhenProgressStands) {
  std::promise<Seconds> idle;
  std::atomic<int> count{0};
  const Seconds begin = now();
  const Watchdog watchdog{Seconds{0.05}, [] { return 7; },
                          [&](Seconds seconds) {
                            if (++count == 1) idle.set_value(seconds);
                          }};

  const Seconds told = idle.get_future().get();

  EXPECT_GT(told.value, 0.05);
  EXPECT_LE(told.value, (now() - begin).value);
  std::this_thread::sleep_for(milliseconds{150});
  EXPECT_EQ(count.load(), 1);
}

TEST(AWatchdog, IsSilentWhileThereIsProgress) {
  std::atomic<bool> fired{false};
  std::int64_t progress = 0;
  {
    // Every look finds a new count, however seldom the thread gets to run.
    const Watchdog watchdog{Seconds{0.02}, [&] { return ++progress; }, [&](Seconds) { fired = true; }};
    std::this_thread::sleep_for(milliseconds{150});
  }

  EXPECT_FALSE(fired.load());
  EXPECT_GT(progress, 2);
}

TEST(AWatchdog, CountsFromTheLastProgress) {
  std::promise<void> fired;
  std::atomic<std::int64_t> progress{0};
  std::atomic<std::int64_t> looks{0};
  const Seconds begin = now();
  const Watchdog watchdog{Seconds{0.05},
                          [&] {
                            // Moves for twenty looks, at least two limits long, and stands then.
                            if (++looks <= 20) ++progress;
                            return progress.load();
                          },
                          [&](Seconds) { fired.set_value(); }};

  fired.get_future().wait();

  EXPECT_GT((now() - begin).value, 0.05 + 19 * 0.005);
}

TEST(AWatchdog, WithoutALimitNeverLooks) {
  std::atomic<int> calls{0};
  {
    const Watchdog watchdog{Seconds{0}, [&] { return ++calls; }, [&](Seconds) { ++calls; }};
    std::this_thread::sleep_for(milliseconds{30});
  }

  EXPECT_EQ(calls.load(), 0);
}

TEST(AWatchdog, EndsAtOnceBeforeItsLimit) {
  const Seconds begin = now();
  {
    const Watchdog watchdog{Seconds{3600}, [] { return 0; }, [](Seconds) { ADD_FAILURE(); }};
  }

  // Its thread looks once a second at most; it is woken, not waited for.
  EXPECT_LT((now() - begin).value, 1.0);
}

}  // namespace
}  // namespace penstock
