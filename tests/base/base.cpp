// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/host_block.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
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

TEST(Log, NamesTheRankOfAnErrorUnlessAllHaveIt) {
  log::set_process(3, false);
  testing::internal::CaptureStderr();

  log::error("of one");
  log::common_error("of all");

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rank 3: error: of one\nerror: of all\n");
}

TEST(Counted, TakesThePluralUnlessThereIsOne) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "micro-batch", "micro-batches"), "2 micro-batches");
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
}

TEST(HostBlock, NamesWhatDoesNotFitAndWhatToDo) {
  for (const Bytes absurd : {Bytes{std::int64_t{1} << 60}, Bytes{std::numeric_limits<std::int64_t>::max()}}) {
    try {
      const HostBlock block{absurd, "the fp32 masters of stage 3", "buy more"};
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::does_not_fit);
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("the fp32 masters of stage 3: Cannot allocate memory"),
                                 testing::HasSubstr("; buy more")));
    }
  }
}

TEST(HostBlock, IsZeroAndAlignedToAHugePage) {
  for (const std::int64_t size : {std::int64_t{100}, HostBlock::alignment + 100}) {
    const HostBlock block{Bytes{size}, "a test"};

    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % std::uintptr_t{HostBlock::alignment}, 0U);
    EXPECT_TRUE(std::all_of(block.data(), block.data() + size, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(HostBlockDeathTest, StopsWhatRunsOverItsLastPage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const HostBlock block{Bytes{page}, "a test"};

  EXPECT_DEATH(*reinterpret_cast<volatile char*>(block.data() + page) = 1, "");
}

TEST(HostBlock, OfNoBytesHasAnAddress) {
  EXPECT_NE(HostBlock(Bytes{0}, "nothing").data(), nullptr);
  EXPECT_EQ(HostBlock{}.data(), nullptr);
}

}  // namespace
}  // namespace penstock
