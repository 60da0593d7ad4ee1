// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pacer.hpp"

#include <future>
#include <thread>

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr Bytes mebibyte{std::int64_t{1} << 20};
constexpr Bytes many{std::int64_t{100} << 20};

TEST(Pace, SpreadsTheBytesEvenly) {
  const Pace pace{many, Seconds{1}, Seconds{50}};

  EXPECT_DOUBLE_EQ(pace.pause(Bytes{0}, Seconds{50}).value, 0);
  EXPECT_NEAR(pace.pause(Bytes{many.value / 4}, Seconds{50}).value, 0.25, 1e-9);
  EXPECT_NEAR(pace.pause(Bytes{many.value / 2}, Seconds{50.4}).value, 0.1, 1e-9);
  EXPECT_NEAR(pace.pause(many, Seconds{50.4}).value, 0.6, 1e-9);
}

TEST(Pace, DoesNotWaitWhenItIsBehind) {
  const Pace pace{many, Seconds{1}, Seconds{50}};

  EXPECT_EQ(pace.pause(Bytes{many.value / 2}, Seconds{50.6}).value, 0);
  EXPECT_EQ(pace.pause(many, Seconds{60}).value, 0);
}

TEST(Pace, IsNeverSlowerThanItsBound) {
  const Pace pace{many, Seconds{3600}, Seconds{0}};

  EXPECT_NEAR(pace.pause(many, Seconds{0}).value, 100.0 / 64, 1e-9);
}

TEST(Pace, WithoutASpreadNeverWaits) {
  EXPECT_EQ(Pace().pause(many, Seconds{0}).value, 0);
  EXPECT_EQ(Pace(many, Seconds{0}, Seconds{7}).pause(many, Seconds{7}).value, 0);
  EXPECT_EQ(Pace(many, Seconds{-1}, Seconds{7}).pause(many, Seconds{7}).value, 0);
  EXPECT_EQ(Pace(Bytes{0}, Seconds{1}, Seconds{7}).pause(Bytes{0}, Seconds{7}).value, 0);
}

TEST(Pacer, KeepsTheWriterToItsTime) {
  Pacer pacer;
  const Seconds begin = now();
  pacer.begin(Bytes{4 * mebibyte.value}, Seconds{0.04});

  for (int i = 0; i < 4; ++i) pacer.wrote(mebibyte);

  EXPECT_GE((now() - begin).value, 0.04);
}

TEST(Pacer, WakesTheWriterWhenSomebodyWaits) {
  Pacer pacer;
  const Seconds begin = now();
  pacer.begin(Bytes{std::int64_t{1} << 40}, Seconds{1e6});
  // Half of it is due in more than an hour.
  auto writer = std::async(std::launch::async, [&] { pacer.wrote(Bytes{std::int64_t{1} << 39}); });

  pacer.hurry();
  writer.get();
  pacer.wrote(Bytes{std::int64_t{1} << 38});

  EXPECT_LT((now() - begin).value, 600);
}

TEST(Pacer, IsPacedAnewAfterAHurry) {
  Pacer pacer;
  pacer.begin(mebibyte, Seconds{0.01});
  pacer.hurry();

  const Seconds begin = now();
  pacer.begin(mebibyte, Seconds{0.01});
  pacer.wrote(mebibyte);

  EXPECT_GE((now() - begin).value, 0.01);
}

}  // namespace
}  // namespace penstock
