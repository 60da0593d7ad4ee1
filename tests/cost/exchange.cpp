// SPDX-License-Identifier: Apache-2.0
#include "cost/exchange.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace penstock {
namespace {

/// Of equal slices, with an even number of tokens, so that halves are equal too.
SequenceCut even_cut(std::int32_t slices) {
  return {.tokens = 64 * std::int64_t{slices}, .slices = slices};
}

/// Of a sequence in the middle of a step.
BalancedLockstep lockstep_of(Exchange exchange, const LockstepUnit& shape) {
  return {exchange_rule(exchange, std::nullopt), shape, even_cut(shape.slices)};
}

/// Sum over the slots of a sequence of the longest attention, by the sum of the means: 1 is perfect balance.
double imbalance(Exchange exchange, std::int32_t ranks, std::int32_t slices) {
  const BalancedLockstep lockstep = lockstep_of(exchange, {.ranks = ranks, .slices = slices});
  double longest = 0;
  double mean = 0;
  for (std::int32_t slot = 0; slot < slices; ++slot) {
    double most = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const LockstepUnit unit{.ranks = ranks, .slices = slices, .rank = rank, .slice = (slot - rank + slices) % slices};
      const double length = lockstep.of(unit).length;
      most = std::max(most, length);
      mean += length / ranks;
    }
    longest += most;
  }
  return longest / mean;
}

// Published by enumeration: without exchange 1.563, 1.328, 1.656, 1.383; pairs 1.188, 1.109, 1.156, 1.102 (three
// decimals).
TEST(AttentionExchange, HasTheImbalanceOfTheEnumeratedRule) {
  EXPECT_NEAR(imbalance(Exchange::none, 4, 8), 1.563, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::none, 4, 16), 1.328, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::none, 8, 16), 1.656, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::none, 8, 32), 1.383, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::pairwise, 4, 8), 1.188, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::pairwise, 4, 16), 1.109, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::pairwise, 8, 16), 1.156, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::pairwise, 8, 32), 1.102, 5.1e-4);
  EXPECT_NEAR(imbalance(Exchange::global, 8, 16), 1, 1e-12);
}

/// Mean slices of keys and values that a rank exchanges.
double mean_exchanged(std::int32_t ranks, std::int32_t slices) {
  const BalancedLockstep lockstep = lockstep_of(Exchange::pairwise, {.ranks = ranks, .slices = slices});
  double sum = 0;
  for (std::int32_t slice = 0; slice < slices; ++slice) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      sum += lockstep.of({.ranks = ranks, .slices = slices, .rank = rank, .slice = slice}).exchanged;
    }
  }
  return sum / slices / ranks;
}

TEST(AttentionExchange, MovesTheMeanVolumeOfTheEnumeratedRule) {
  EXPECT_DOUBLE_EQ(mean_exchanged(4, 4), 0.5);
  EXPECT_DOUBLE_EQ(mean_exchanged(4, 8), 1.0);
  EXPECT_DOUBLE_EQ(mean_exchanged(4, 16), 1.25);
  EXPECT_DOUBLE_EQ(mean_exchanged(8, 8), 1.5);
  EXPECT_DOUBLE_EQ(mean_exchanged(8, 16), 2.5);
  EXPECT_DOUBLE_EQ(mean_exchanged(8, 32), 3.0);
  EXPECT_DOUBLE_EQ(mean_exchanged(16, 64), 6.5);
}

/// Pairs of a query and a key that each rank attends to in the slot in which rank 0 has `slice`.
std::vector<double> pairs_of_slot(Exchange exchange, const SequenceCut& cut, std::int32_t ranks, std::int32_t slice) {
  const BalancedLockstep lockstep{exchange_rule(exchange, std::nullopt), {.ranks = ranks, .slices = cut.slices}, cut};
  std::vector<double> pairs;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const std::int32_t own = (slice - rank + cut.slices) % cut.slices;
    const auto queries = static_cast<double>(cut.slice(Slice{own}).count);
    pairs.push_back(queries * queries *
                    lockstep.of({.ranks = ranks, .slices = cut.slices, .rank = rank, .slice = own}).length);
  }
  return pairs;
}

TEST(AttentionExchange, CountsSlicesThatDifferByATokenWithTheirOwn) {
  const SequenceCut cut{.tokens = 8 * 100 + 3, .slices = 8};
  for (std::int32_t slice = 0; slice < cut.slices; ++slice) {
    const auto alone = pairs_of_slot(Exchange::none, cut, 4, slice);
    const double all = std::accumulate(alone.begin(), alone.end(), 0.0);

    const auto global = pairs_of_slot(Exchange::global, cut, 4, slice);
    const auto pairwise = pairs_of_slot(Exchange::pairwise, cut, 4, slice);

    // Work moves, and none is lost; sums of up to a million have 1e-10 of rounding.
    EXPECT_NEAR(std::accumulate(global.begin(), global.end(), 0.0), all, 1e-6);
    EXPECT_NEAR(std::accumulate(pairwise.begin(), pairwise.end(), 0.0), all, 1e-6);
    // All have as many halves, of 50 or 51 keys, with 100 or 101 queries.
    const auto [least, most] = std::minmax_element(global.begin(), global.end());
    EXPECT_LT(*most / *least, 51.0 / 50 * 101 / 100);
  }
}

/// The mean over all ranks of the slot in which `unit` is.
double mean_of_slot(const LockstepUnit& unit) {
  return lockstep_of(Exchange::global, unit).of(unit).length;
}

TEST(Lockstep, PutsRanksOneSliceApart) {
  EXPECT_DOUBLE_EQ(mean_of_slot({.ranks = 4, .slices = 8, .rank = 0, .slice = 5}), (5.5 + 4.5 + 3.5 + 2.5) / 4);
  EXPECT_DOUBLE_EQ(mean_of_slot({.ranks = 4, .slices = 8, .rank = 3, .slice = 2}), (5.5 + 4.5 + 3.5 + 2.5) / 4);
}

TEST(Lockstep, StartsTheNextSequenceWhereOneEnds) {
  EXPECT_DOUBLE_EQ(mean_of_slot({.ranks = 4, .slices = 8, .rank = 0, .slice = 1}), (1.5 + 0.5 + 7.5 + 6.5) / 4);
}

// With two virtual stages a group of four slices runs twice: rank 0 at the second stage of slice 0 follows slice 3 of
// the first.
TEST(Lockstep, RunsAGroupThroughAllVirtualStages) {
  EXPECT_DOUBLE_EQ(mean_of_slot({.ranks = 4, .virtual_stages = 2, .slices = 8, .rank = 0, .chunk = 1, .slice = 0}),
                   (0.5 + 3.5 + 2.5 + 1.5) / 4);
  EXPECT_DOUBLE_EQ(mean_of_slot({.ranks = 4, .virtual_stages = 2, .slices = 8, .rank = 0, .chunk = 0, .slice = 4}),
                   (4.5 + 3.5 + 2.5 + 1.5) / 4);
}

}  // namespace
}  // namespace penstock
