// SPDX-License-Identifier: Apache-2.0
#include "device/arena.hpp"

#include <array>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ArenaOf1024Bytes : public testing::Test {
 protected:
  /// The message of the internal Error that taking the range throws; "" if it throws none.
  std::string refusal_of(std::int64_t offset, std::int64_t bytes) {
    try {
      arena_.take(Bytes{offset}, Bytes{bytes}, "newcomer");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::internal);
      return error.what();
    }
    return "";
  }

  std::array<std::byte, 1024> memory_{};
  Arena arena_{memory_.data(), Bytes{1024}};
};

TEST_F(ArenaOf1024Bytes, GivesAddressesAtTheOffsetsOfThePlan) {
  EXPECT_EQ(arena_.take(Bytes{0}, Bytes{256}, "a"), memory_.data());
  EXPECT_EQ(arena_.take(Bytes{256}, Bytes{768}, "b"), memory_.data() + 256);
}

TEST_F(ArenaOf1024Bytes, KeepsTheHighestAddressAsThePeak) {
  arena_.take(Bytes{0}, Bytes{128}, "low");
  arena_.take(Bytes{512}, Bytes{100}, "high");
  arena_.free(Bytes{512});
  arena_.take(Bytes{128}, Bytes{128}, "middle");

  EXPECT_EQ(arena_.peak(), Bytes{612});
}

TEST_F(ArenaOf1024Bytes, RefusesARangeBeyondTheCapacityByName) {
  EXPECT_EQ(refusal_of(0, 1024), "");
  arena_.free(Bytes{0});

  EXPECT_THAT(refusal_of(0, 1025), AllOf(HasSubstr("newcomer"), HasSubstr("1024")));
  EXPECT_THAT(refusal_of(1000, 25), HasSubstr("beyond"));
  EXPECT_THAT(refusal_of(1025, 0), HasSubstr("beyond"));
  EXPECT_THAT(refusal_of(-1, 8), HasSubstr("beyond"));
  EXPECT_THAT(refusal_of(8, -1), HasSubstr("beyond"));
  EXPECT_THAT(refusal_of(8, std::numeric_limits<std::int64_t>::max()), HasSubstr("beyond"));
}

TEST_F(ArenaOf1024Bytes, RefusesAnOverlapFromEverySideNamingBoth) {
  arena_.take(Bytes{256}, Bytes{256}, "resident");

  for (const auto& [offset, bytes] : {std::pair{256, 256}, {255, 2}, {511, 2}, {300, 10}, {0, 1024}, {256, 0}}) {
    EXPECT_THAT(refusal_of(offset, bytes), AllOf(HasSubstr("newcomer"), HasSubstr("resident"))) << offset;
  }
}

TEST_F(ArenaOf1024Bytes, LetsRangesTouchAndBeTakenAgain) {
  arena_.take(Bytes{256}, Bytes{256}, "resident");

  EXPECT_EQ(refusal_of(0, 256), "");
  EXPECT_EQ(refusal_of(512, 512), "");
  arena_.free(Bytes{256});
  EXPECT_EQ(refusal_of(256, 128), "");
}

TEST_F(ArenaOf1024Bytes, RefusesToFreeWhatIsNotInUse) {
  arena_.take(Bytes{256}, Bytes{256}, "resident");

  EXPECT_THROW(arena_.free(Bytes{300}), Error);
  arena_.free(Bytes{256});
  EXPECT_THROW(arena_.free(Bytes{256}), Error);
}

}  // namespace
}  // namespace penstock
