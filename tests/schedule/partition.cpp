// SPDX-License-Identifier: Apache-2.0
#include "schedule/partition.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> sizes(const Partition& partition) {
  std::vector<int> result;
  for (const LayerRange& range : partition.stages) result.push_back(range.size());
  return result;
}

template <class Cut>
std::string refusal_of_cut(const Cut& cut) {
  try {
    cut();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return "";
}

TEST(EvenPartition, GivesTheEarlierStagesTheLargerParts) {
  EXPECT_THAT(sizes(even_partition(30, 4)), ElementsAre(8, 8, 7, 7));
  EXPECT_THAT(sizes(even_partition(10, 8)), ElementsAre(2, 2, 1, 1, 1, 1, 1, 1));
}

TEST(EvenPartition, CoversEveryLayerOnceWithoutAnEmptyStage) {
  for (int layers = 1; layers <= 80; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const Partition partition = even_partition(layers, stages);

      ASSERT_EQ(partition.stages.size(), stages);
      std::int32_t next = 0;
      for (const LayerRange& range : partition.stages) {
        EXPECT_EQ(range.begin.value(), next);
        EXPECT_GE(range.size(), layers / stages);
        EXPECT_LE(range.size(), layers / stages + 1);
        next = range.end.value();
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(EvenPartition, RefusesMoreStagesThanLayersWithBothNumbers) {
  EXPECT_THAT(refusal_of_cut([] { even_partition(3, 4); }), AllOf(HasSubstr("3 layers"), HasSubstr("4 stages")));
  EXPECT_THAT(refusal_of_cut([] { even_partition(3, 0); }), HasSubstr("0 stages"));
}

TEST(ListedPartition, CutsAsListed) {
  const Partition partition = listed_partition(6, {1, 3, 2});

  EXPECT_THAT(sizes(partition), ElementsAre(1, 3, 2));
  EXPECT_EQ(partition.stages[Stage{2}].begin, Layer{4});
}

TEST(ListedPartition, RefusesAnotherSumAndEmptyStages) {
  EXPECT_THAT(refusal_of_cut([] {
                listed_partition(20, {1, 2});
              }),
              AllOf(HasSubstr("1 + 2 = 3"), HasSubstr("20 layers")));
  EXPECT_THAT(refusal_of_cut([] { listed_partition(2, {2, 0}); }), HasSubstr("stage 1 is given 0 layers"));
}

}  // namespace
}  // namespace penstock
