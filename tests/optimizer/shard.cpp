// SPDX-License-Identifier: Apache-2.0
#include "optimizer/shard.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"

namespace penstock {
namespace {

std::vector<std::int64_t> random_sizes(std::uint64_t seed) {
  const CounterRandom random{seed, RandomPurpose::tests, 1};
  std::vector<std::int64_t> sizes(1 + random.words(0)[0] % 12);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto words = random.words(i + 1);
    sizes[i] = words[0] % (words[1] % 3 == 0 ? 5 * chunk_elements : 1000);
  }
  return sizes;
}

TEST(Shard, CoversEveryElementOnceInOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto sizes = random_sizes(seed);
    for (const std::int32_t replicas : {1, 2, 3, 4, 7, 64}) {
      std::vector<ShardPiece> all;
      for (std::int32_t replica = 0; replica < replicas; ++replica) {
        const auto pieces = shard(sizes, replicas, replica);
        all.insert(all.end(), pieces.begin(), pieces.end());
      }

      // Replicas one after the other give all chunks in order: each parameter from 0 to its size, without a gap.
      std::size_t next = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        for (std::int64_t first = 0; first < sizes[i]; first += chunk_elements) {
          ASSERT_LT(next, all.size());
          EXPECT_EQ(all[next++],
                    (ShardPiece{static_cast<std::int32_t>(i), first, std::min(chunk_elements, sizes[i] - first)}));
        }
      }
      EXPECT_EQ(next, all.size());
    }
  }
}

TEST(Shard, BalancesToWithinOneChunk) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto sizes = random_sizes(seed);
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    for (const std::int32_t replicas : {1, 2, 3, 4, 7}) {
      for (std::int32_t replica = 0; replica < replicas; ++replica) {
        std::int64_t owned = 0;
        for (const auto& piece : shard(sizes, replicas, replica)) owned += piece.count;
        EXPECT_LE(std::abs(owned * replicas - total), chunk_elements * replicas) << "seed " << seed;
      }
    }
  }
}

TEST(Shard, LeavesReplicasWithoutWorkWhenThereAreFewChunks) {
  EXPECT_THAT(shard(std::vector<std::int64_t>{100}, 3, 0), testing::IsEmpty());
  EXPECT_THAT(shard(std::vector<std::int64_t>{100}, 3, 1), testing::ElementsAre(ShardPiece{0, 0, 100}));
  EXPECT_THAT(shard(std::vector<std::int64_t>{}, 2, 0), testing::IsEmpty());
  EXPECT_THAT(shard(std::vector<std::int64_t>{0, 0}, 2, 1), testing::IsEmpty());
}

TEST(Shard, CountsBeyond32Bits) {
  const std::int64_t size = (std::int64_t{3} << 31) + 5;

  const auto last = shard(std::vector<std::int64_t>{size}, 1000, 999).back();

  EXPECT_EQ(last, (ShardPiece{0, std::int64_t{3} << 31, 5}));
}

TEST(Shard, RefusesAReplicaThatIsNotThere) {
  EXPECT_THROW(shard(std::vector<std::int64_t>{1}, 2, 2), Error);
  EXPECT_THROW(shard(std::vector<std::int64_t>{1}, 0, 0), Error);
  EXPECT_THROW(shard(std::vector<std::int64_t>{1}, 2, -1), Error);
}

}  // namespace
}  // namespace penstock
