// SPDX-License-Identifier: Apache-2.0
#include "store/shared_layout.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"

namespace penstock {
namespace {

const std::int64_t page = sysconf(_SC_PAGESIZE);

TEST(SharedLayoutTest, PutsEachCopyOnPagesOfItsOwnBehindTheVersions) {
  SharedStages stages;
  stages.owner = PerStage<Rank>{{Rank{1}, Rank{0}, Rank{1}}};
  stages.bytes = PerStage<Bytes>{{Bytes{1}, Bytes{page}, Bytes{page + 1}}};

  const SharedLayout layout{stages};

  EXPECT_EQ(layout.version_offset(Stage{0}).value, 0);
  EXPECT_EQ(layout.version_offset(Stage{1}).value, 0);
  EXPECT_EQ(layout.version_offset(Stage{2}).value, 64);
  EXPECT_EQ(layout.copy_offset(Stage{0}).value, page);
  EXPECT_EQ(layout.copy_offset(Stage{1}).value, page);
  EXPECT_EQ(layout.copy_offset(Stage{2}).value, 2 * page);
  EXPECT_EQ(layout.block(Rank{0}).value, 2 * page);
  EXPECT_EQ(layout.block(Rank{1}).value, 4 * page);
  EXPECT_EQ(layout.block(Rank{2}).value, 0);
}

TEST(SharedLayoutTest, KeepsVersionsApartFromCopiesWhereThereAreMany) {
  const auto many = static_cast<std::int32_t>(page / 64 + 1);
  const SharedLayout layout{{PerStage<Rank>(many, Rank{0}), PerStage<Bytes>(many, Bytes{3})}};

  EXPECT_EQ(layout.version_offset(Stage{many - 1}).value, page);
  EXPECT_EQ(layout.copy_offset(Stage{0}).value, 2 * page);
  EXPECT_EQ(layout.block(Rank{0}).value, (2 + many) * page);
}

TEST(SharedLayoutTest, RefusesTablesOfDifferentLengths) {
  EXPECT_THROW(SharedLayout({PerStage<Rank>(2), PerStage<Bytes>(3)}), Error);
}

}  // namespace
}  // namespace penstock
