// SPDX-License-Identifier: Apache-2.0
#include "comm/backoff.hpp"

#include <ctime>

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(ABackoff, TestsAFewTimesAtOnceThenSleeps) {
  Backoff backoff;
  int at_once = 0;
  while (backoff.next() == Seconds{0}) ++at_once;

  EXPECT_GE(at_once, 1);
  EXPECT_LE(at_once, 10);
}

TEST(ABackoff, GrowsFrom20To200Microseconds) {
  Backoff backoff;
  Seconds last = backoff.next();
  while (last == Seconds{0}) last = backoff.next();
  EXPECT_EQ(last, Seconds{20e-6});

  for (int i = 0; i < 100; ++i) {
    const Seconds next = backoff.next();
    EXPECT_GE(next, last);
    last = next;
  }
  EXPECT_EQ(last, Seconds{200e-6});
}

TEST(ABackoff, BeginsAnewAfterAReset) {
  Backoff backoff;
  for (int i = 0; i < 100; ++i) backoff.next();

  backoff.reset();

  EXPECT_EQ(backoff.next(), Seconds{0});
}

TEST(ABackoff, SleepsInsteadOfSpinning) {
  Backoff backoff;
  const Seconds begin = now();
  const std::clock_t cpu = std::clock();

  while ((now() - begin).value < 0.1) backoff.pause();

  EXPECT_LT(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, 0.03);
}

}  // namespace
}  // namespace penstock
