// SPDX-License-Identifier: Apache-2.0
#include "memory/address_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(AddressMap, TakesFromTheBottomUp) {
  AddressMap map{Bytes{100}};

  EXPECT_EQ(map.take(Bytes{10}).offset, Bytes{100});
  EXPECT_EQ(map.take(Bytes{5}).offset, Bytes{110});
}

TEST(AddressMap, ReusesTheLowestHoleThatFitsAndNamesWhoFreedIt) {
  AddressMap map{Bytes{0}};
  map.take(Bytes{10});
  map.take(Bytes{20});
  map.take(Bytes{10});
  map.free(Bytes{0}, Bytes{10}, 7);
  map.free(Bytes{10}, Bytes{20}, 8);
  map.take(Bytes{10});

  const auto taken = map.take(Bytes{15});

  EXPECT_EQ(taken.offset, Bytes{10});
  EXPECT_THAT(taken.freed_by, ElementsAre(8));
}

TEST(AddressMap, JoinsHolesThatDifferentActionsFreed) {
  AddressMap map{Bytes{0}};
  map.take(Bytes{10});
  map.take(Bytes{10});
  map.take(Bytes{10});
  map.free(Bytes{10}, Bytes{10}, 4);
  map.free(Bytes{0}, Bytes{10}, 5);

  const auto taken = map.take(Bytes{15});

  EXPECT_EQ(taken.offset, Bytes{0});
  EXPECT_THAT(taken.freed_by, ElementsAre(5, 4));
  EXPECT_THAT(map.take(Bytes{5}).freed_by, ElementsAre(4));
}

TEST(AddressMap, NamesTheLatestToFreeAByte) {
  AddressMap map{Bytes{0}};
  map.take(Bytes{10});
  map.free(Bytes{0}, Bytes{10}, 1);
  map.take(Bytes{4});
  map.free(Bytes{0}, Bytes{4}, 2);

  EXPECT_THAT(map.take(Bytes{4}).freed_by, ElementsAre(2));
  EXPECT_THAT(map.take(Bytes{6}).freed_by, ElementsAre(1));
  EXPECT_THAT(map.take(Bytes{6}).freed_by, IsEmpty());
}

TEST(AddressMap, JoinsWhatOneActionFreesInAnyOrder) {
  for (const bool ascending : {true, false}) {
    AddressMap map{Bytes{0}};
    map.take(Bytes{30});
    map.free(Bytes{ascending ? 0 : 20}, Bytes{10}, 3);
    map.free(Bytes{10}, Bytes{10}, 3);
    map.free(Bytes{ascending ? 20 : 0}, Bytes{10}, 3);

    EXPECT_THAT(map.take(Bytes{30}).freed_by, ElementsAre(3));
  }
}

TEST(AddressMap, TakesFromBothEndsAndNamesWhoFreedWhatTheyShare) {
  AddressMap map{Bytes{100}, Bytes{160}};
  EXPECT_EQ(map.take(Bytes{30}).offset, Bytes{100});
  EXPECT_EQ(map.take_highest(Bytes{10}).offset, Bytes{150});
  EXPECT_EQ(map.take_highest(Bytes{20}).offset, Bytes{130});
  map.free(Bytes{100}, Bytes{30}, 6);
  map.free(Bytes{130}, Bytes{20}, 7);

  const auto taken = map.take_highest(Bytes{25});

  EXPECT_EQ(taken.offset, Bytes{125});
  EXPECT_THAT(taken.freed_by, ElementsAre(6, 7));
  EXPECT_EQ(map.take(Bytes{25}).offset, Bytes{100});
  EXPECT_THROW(map.take(Bytes{1}), Error);
  EXPECT_THROW(map.take_highest(Bytes{1}), Error);
}

TEST(AddressMap, TellsWhereItsTakenRangesEnd) {
  AddressMap map{Bytes{100}};
  EXPECT_EQ(map.taken_end(), Bytes{100});
  map.take(Bytes{10});
  map.take(Bytes{5});
  EXPECT_EQ(map.taken_end(), Bytes{115});

  map.free(Bytes{100}, Bytes{10}, 1);
  EXPECT_EQ(map.taken_end(), Bytes{115});
  map.free(Bytes{110}, Bytes{5}, 2);
  EXPECT_EQ(map.taken_end(), Bytes{100});
}

TEST(AddressMap, RefusesMoreThanTheAddressesThatThereAre) {
  AddressMap map{Bytes{1000}};

  EXPECT_THROW(map.take(Bytes{INT64_MAX}), Error);
}

}  // namespace
}  // namespace penstock
