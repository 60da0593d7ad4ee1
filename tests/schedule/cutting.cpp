// SPDX-License-Identifier: Apache-2.0
#include "schedule/cutting.hpp"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> lengths(const SequenceCut& cut) {
  std::vector<std::int64_t> result;
  for (const Slice slice : all<Slice>(cut.slices)) result.push_back(cut.slice(slice).count);
  return result;
}

/// Of the tokens of a range: one each, and the keys that each attends to.
double work(const TokenRange& range, double key_cost) {
  double sum = 0;
  for (std::int64_t token = range.begin; token < range.end(); ++token) {
    sum += 1 + key_cost * static_cast<double>(token + 1);
  }
  return sum;
}

const std::vector<double> key_costs{0, 1e-6, 1e-3, 0.1, 1, 1e6};

TEST(ASequenceCut, IntoEqualLengthsPutsTheLongerSlicesFirst) {
  EXPECT_THAT(lengths({.tokens = 11, .slices = 4}), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(lengths({.tokens = 12, .slices = 4}), ElementsAre(3, 3, 3, 3));
}

TEST(ASequenceCut, IntoEqualWorkPutsTheShorterSlicesBehind) {
  // Keys alone count: x (x + 1) / 2 of 55 to each of two borders, which are next to 5.6 and 7.9 of 10 tokens.
  EXPECT_THAT(lengths({.tokens = 10, .slices = 3, .key_cost = 1e9}), ElementsAre(6, 2, 2));
  // 150.5 in all: 37.28 of 37.6 in the first 32 tokens, 75.1 of 75.3 in 58, 112.4 of 112.9 in 80.
  EXPECT_THAT(lengths({.tokens = 100, .slices = 4, .key_cost = 0.01}), ElementsAre(32, 26, 22, 20));
}

TEST(ASequenceCut, GivesEveryTokenToOneSliceAndEverySliceAToken) {
  for (const double key_cost : key_costs) {
    for (const std::int64_t tokens : {1, 2, 3, 7, 8, 40, 1000}) {
      for (std::int32_t slices = 1; slices <= std::min<std::int64_t>(tokens, 40); ++slices) {
        const SequenceCut cut{tokens, slices, key_cost};
        std::int64_t next = 0;
        std::int64_t longest = 0;
        for (const Slice slice : all<Slice>(slices)) {
          const TokenRange range = cut.slice(slice);
          ASSERT_EQ(range.begin, next);
          ASSERT_GE(range.count, 1) << tokens << " tokens, " << slices << " slices, " << key_cost;
          longest = std::max(longest, range.count);
          next = range.end();
        }
        ASSERT_EQ(next, tokens);
        EXPECT_EQ(cut.longest(), longest);
      }
    }
  }
}

TEST(ASequenceCut, IntoEqualWorkIsOffByNoMoreThanATokensWorth) {
  for (const double key_cost : key_costs) {
    if (key_cost == 0) continue;
    for (const std::int64_t tokens : {1000, 4096, 65536}) {
      for (const std::int32_t slices : {2, 3, 8, 16}) {
        const SequenceCut cut{tokens, slices, key_cost};
        const double mean = work({0, tokens}, key_cost) / slices;
        const double of_last_token = 1 + key_cost * static_cast<double>(tokens);
        for (const Slice slice : all<Slice>(slices)) {
          EXPECT_LE(std::abs(work(cut.slice(slice), key_cost) - mean), of_last_token);
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
