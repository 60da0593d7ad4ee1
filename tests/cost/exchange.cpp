// SPDX-License-Identifier: Apache-2.0
#include "cost/exchange.hpp"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

namespace penstock {
namespace {

/// Sum over the slots of a sequence of the longest attention, by the sum of the means: 1 is perfect balance.
double imbalance(Exchange exchange, std::int32_t ranks, std::int32_t slices) {
  const BalancedLockstep lockstep{exchange_rule(exchange, std::nullopt), {.ranks = ranks, .slices = slices}};
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
  const BalancedLockstep lockstep{exchange_rule(Exchange::pairwise, std::nullopt), {.ranks = ranks, .slices = slices}};
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

/// The mean over all ranks of the slot in which `unit` is.
double mean_of_slot(const LockstepUnit& unit) {
  return BalancedLockstep{exchange_rule(Exchange::global, std::nullopt), unit}.of(unit).length;
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
