// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/index.hpp"
#include "base/random.hpp"
#include "base/units.hpp"

namespace penstock {
namespace {

TEST(ParseBytes, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("2 GiB"), Bytes{std::int64_t{2} << 30});
  EXPECT_EQ(parse_bytes("2GB"), Bytes{2'000'000'000});
  EXPECT_EQ(parse_bytes("1.5 KiB"), Bytes{1536});
  EXPECT_EQ(parse_bytes(" 4096 "), Bytes{4096});
  EXPECT_EQ(parse_bytes("0"), Bytes{0});
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "-1 GiB", "2 GIB", "2 GiB x", "nan", "inf", "1e30 GiB", "9223372036854775808"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Bytes, PrintsInTheLargestFittingUnit) {
  EXPECT_EQ(to_text(Bytes{12}), "12 B");
  EXPECT_EQ(to_text(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(to_text(Bytes{std::int64_t{5} << 29}), "2.50 GiB");
}

TEST(Philox, ReproducesTheKnownAnswersOfItsAuthors) {
  // Random123 1.x, kat_vectors: philox4x32-10 with all zero and with all one bits.
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}), testing::ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
              testing::ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
}

TEST(CounterRandom, GivesNormalsOfTheRightMoments) {
  const CounterRandom random{7, RandomPurpose::tests, 3};
  constexpr int count = 20000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
  }

  EXPECT_NEAR(sum / count, 0.0, 5.0 / std::sqrt(count));  // five standard errors
  EXPECT_NEAR(squares / count, 1.0, 5.0 * std::sqrt(2.0 / count));
}

TEST(Index, KeepsKindsApartAndCounts) {
  std::set<int> seen;
  for (Stage stage : all<Stage>(3)) seen.insert(stage.value());

  EXPECT_THAT(seen, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(fmt::format("{}", Rank{4}), "4");
}

struct CountingTraits {
  using Handle = int;
  static int null() noexcept { return -1; }
  static void close(int) noexcept { ++closed; }
  static inline int closed = 0;
};

TEST(UniqueHandle, ClosesOnceWhateverMoves) {
  CountingTraits::closed = 0;
  {
    UniqueHandle<CountingTraits> first{1};
    UniqueHandle<CountingTraits> second{std::move(first)};
    first = std::move(second);
    first.reset(2);
  }

  EXPECT_EQ(CountingTraits::closed, 2);
}

TEST(Fail, CarriesTheExitCodeAndTheMessage) {
  try {
    fail(ExitCode::does_not_fit, "needs {} bytes", 7);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    EXPECT_STREQ(error.what(), "needs 7 bytes");
  }
}

}  // namespace
}  // namespace penstock
