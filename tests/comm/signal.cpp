// SPDX-License-Identifier: Apache-2.0
#include "comm/signal.hpp"

#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(ASignal, EndsAWaitThatItComesBefore) {
  Signal signal;
  signal.raise();

  EXPECT_TRUE(signal.wait());
}

TEST(ASignal, IsLoweredByTheWait) {
  Signal signal;
  signal.raise();
  signal.wait();

  EXPECT_FALSE(signal.wait(Seconds{1e-3}));
}

TEST(ASignal, EndsAWaitThatItComesInto) {
  Signal signal;
  std::thread raising{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    signal.raise();
  }};

  const bool was_raised = signal.wait(Seconds{60});
  raising.join();

  EXPECT_TRUE(was_raised);
}

TEST(ASignal, WaitsNoLongerThanAsked) {
  Signal signal;
  const Seconds begin = now();

  EXPECT_FALSE(signal.wait(Seconds{5e-3}));

  EXPECT_GE((now() - begin).value, 5e-3);
  EXPECT_LT((now() - begin).value, 1.0);
}

TEST(ASignal, LosesNoRaiseBetweenTwoThreads) {
  Signal there;
  Signal back;
  int rounds = 0;
  constexpr int all_rounds = 20'000;
  std::thread answering{[&] {
    for (int i = 0; i < all_rounds; ++i) {
      there.wait();
      ++rounds;  // unprotected: the signals order it
      back.raise();
    }
  }};

  for (int i = 0; i < all_rounds; ++i) {
    EXPECT_EQ(rounds, i);
    there.raise();
    back.wait();
  }
  answering.join();

  EXPECT_EQ(rounds, all_rounds);
}

TEST(ASignal, MayBeRaisedWhenItsFlagIsGone) {
  auto flag = std::make_unique<WakeFlag>(0);
  Signal signal{flag.get()};
  signal.raise();
  EXPECT_TRUE(signal.wait());

  signal.detach();
  flag.reset();

  signal.raise();
}

}  // namespace
}  // namespace penstock
