// SPDX-License-Identifier: Apache-2.0
#include "schedule/attention_exchange.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/helpers.hpp"
#include "schedule/lockstep.hpp"
#include "schedule/sliced_generators.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;

constexpr ExchangeRule pairs{Exchange::pairwise, ExchangeGrain::chunk};
constexpr ExchangeRule global_chunks{Exchange::global, ExchangeGrain::chunk};
constexpr ExchangeRule global_halves{Exchange::global, ExchangeGrain::half};
constexpr ExchangeRule pair_halves{Exchange::pairwise, ExchangeGrain::half};

SlotSlices slices_of(const std::vector<std::int32_t>& numbers) {
  SlotSlices slices;
  for (const std::int32_t number : numbers) slices.push_back(Slice{number});
  return slices;
}

Lockstep slimpipe_lockstep(std::int32_t p, std::int32_t v, std::int32_t n, std::int32_t m, ExchangeRule rule) {
  return Lockstep{slimpipe({.pipeline = p, .virtual_stages = v, .micro_batches = m, .slices = n, .exchange = rule})};
}

/// Half chunks that each member of a slot attends to, in its order.
std::vector<std::int32_t> loads(const LockstepSlot& slot) {
  std::map<Rank, std::int32_t> of_rank;
  for (const SlotMember& member : slot.members) of_rank[member.rank] = attention_halves(member.action.slice);
  for (const ChunkShare& share : slot.shares) {
    of_rank[share.owner] -= share.end - share.begin;
    of_rank[share.helper] += share.end - share.begin;
  }
  std::vector<std::int32_t> result;
  result.reserve(of_rank.size());
  for (const auto& [rank, halves] : of_rank) result.push_back(halves);
  return result;
}

/// Sum over slots of the largest attention of a member, by the sum of the means of its members: 1 is perfect balance.
class Balance {
 public:
  void add(const LockstepSlot& slot) {
    if (slot.members.empty()) return;
    const auto halves = loads(slot);
    most_ += *std::max_element(halves.begin(), halves.end());
    for (const std::int32_t own : halves) mean_ += static_cast<double>(own) / static_cast<double>(halves.size());
  }
  double imbalance() const { return most_ / mean_; }

 private:
  double most_ = 0;
  double mean_ = 0;
};

/// Of all forward and backward slots of a step of so many micro-batches: its first and last ones, where some ranks have
/// no work, and the borders between sequences.
double imbalance_of_step(std::int32_t p, std::int32_t v, std::int32_t n, std::int32_t m, ExchangeRule rule) {
  const Lockstep lockstep = slimpipe_lockstep(p, v, n, m, rule);
  Balance balance;
  for (const LockstepSlot& slot : lockstep.slots()) balance.add(slot);
  return balance.imbalance();
}

/// Of the slots of one sequence in the middle of a step: each rank goes from one sequence to the next once.
double imbalance_of_sequence(std::int32_t p, std::int32_t n, ExchangeRule rule) {
  const Lockstep lockstep = slimpipe_lockstep(p, 1, n, 3, rule);
  Balance balance;
  for (std::int32_t slot = n; slot < 2 * n; ++slot) balance.add(lockstep.slots()[static_cast<std::size_t>(slot)]);
  return balance.imbalance();
}

/// Checks what holds of every slot, whatever is balanced.
void expect_every_half_attended_to_once(const LockstepSlot& slot, ExchangeRule rule) {
  std::map<Rank, Slice> slice_of;
  for (const SlotMember& member : slot.members) slice_of[member.rank] = member.action.slice;
  std::map<Rank, std::int32_t> next;  // of an owner: what was not handed on yet
  std::set<Rank> helpers;
  for (const ChunkShare& share : slot.shares) {
    ASSERT_TRUE(slice_of.contains(share.owner) && slice_of.contains(share.helper));
    EXPECT_NE(share.owner, share.helper);
    EXPECT_EQ(share.begin, next[share.owner]) << "what is handed on is one range from the oldest half on";
    EXPECT_LT(share.begin, share.end);
    next[share.owner] = share.end;
    EXPECT_LE(share.end, 2 * slice_of.at(share.owner).value()) << "the causal chunk stays";
    if (rule.grain == ExchangeGrain::chunk) {
      EXPECT_EQ(share.begin % 2 + share.end % 2, 0);
    }
    helpers.insert(share.helper);
  }
  for (const auto& [owner, handed] : next) EXPECT_FALSE(helpers.contains(owner)) << "rank " << owner.value();
}

constexpr std::array all_rules{pairs, pair_halves, global_chunks, global_halves};

TEST(AttentionExchange, AttendsToEveryHalfChunkOnce) {
  for (const ExchangeRule rule : all_rules) {
    for (const auto& [p, v, n, m] : {std::array{2, 1, 2, 1},
                                     {3, 2, 6, 2},
                                     {4, 1, 8, 3},
                                     {4, 3, 8, 2},
                                     {5, 1, 5, 2},
                                     {8, 1, 16, 2},
                                     {8, 2, 32, 1}}) {
      const Lockstep lockstep = slimpipe_lockstep(p, v, n, m, rule);
      for (const LockstepSlot& slot : lockstep.slots()) expect_every_half_attended_to_once(slot, rule);
    }
  }
}

TEST(AttentionExchange, HandsTheOldestChunksToTheRankOfThePair) {
  const auto shares = share_attention(pairs, slices_of({5, 4, 3, 2}));

  // 5.5 and 2.5 differ by 3: one chunk moves. 4.5 and 3.5 differ by one, which whole chunks cannot share.
  EXPECT_THAT(shares, ElementsAre(ChunkShare{Rank{0}, Rank{3}, 0, 2}));
}

TEST(AttentionExchange, SharesHalvesExactly) {
  const auto shares = share_attention(global_halves, slices_of({5, 4, 3, 2}));

  EXPECT_THAT(shares, ElementsAre(ChunkShare{Rank{0}, Rank{3}, 0, 3}, ChunkShare{Rank{1}, Rank{2}, 0, 1}));
}

// Methods, section 3.4: where some ranks have wrapped to the next sequence three pairs have means of 7.5 earlier chunks
// and one of 11.5, against 8.5 of all; own halves come on top.
TEST(AttentionExchange, LevelsABorderAmongAllRanks) {
  const SlotSlices slices = slices_of({2, 1, 0, 15, 14, 13, 12, 11});
  const auto loads_by = [&](ExchangeRule rule) {
    LockstepSlot slot;
    for (const Rank rank : all<Rank>(8)) {
      slot.members.push_back({rank, 0, {Op::forward, Stage{0}, MicroBatch{0}, *slices[rank]}});
    }
    slot.shares = share_attention(rule, slices);
    auto result = loads(slot);
    std::sort(result.begin(), result.end());
    return result;
  };

  EXPECT_THAT(loads_by(pairs), ElementsAre(15, 15, 15, 17, 17, 17, 23, 25));
  EXPECT_THAT(loads_by(global_chunks), ElementsAre(17, 17, 17, 17, 19, 19, 19, 19));
  EXPECT_THAT(loads_by(global_halves), ElementsAre(18, 18, 18, 18, 18, 18, 18, 18));
}

TEST(AttentionExchange, LeavesRanksWithoutWorkAlone) {
  SlotSlices slices{4};
  slices[Rank{1}] = Slice{6};
  slices[Rank{2}] = Slice{4};

  EXPECT_THAT(share_attention(global_chunks, slices), ElementsAre(ChunkShare{Rank{1}, Rank{2}, 0, 2}));
  EXPECT_THAT(share_attention(pairs, slices), ElementsAre(ChunkShare{Rank{1}, Rank{2}, 0, 2}));
}

TEST(AttentionExchange, OfPairsOverASequenceHasTheEnumeratedImbalance) {
  EXPECT_NEAR(imbalance_of_sequence(4, 8, pairs), 1.188, 5.1e-4);
  EXPECT_NEAR(imbalance_of_sequence(4, 16, pairs), 1.109, 5.1e-4);
  EXPECT_NEAR(imbalance_of_sequence(8, 16, pairs), 1.156, 5.1e-4);
  EXPECT_NEAR(imbalance_of_sequence(8, 32, pairs), 1.102, 5.1e-4);
}

// The p slices of a slot are all residues modulo p once: with p even their sum is p/2 modulo p, so that whole chunks
// leave the longest half a chunk above the mean in every slot; over a sequence, whose mean is n/2, that is 1 + 1/n
// exactly.
TEST(AttentionExchange, AmongAllRanksReachesWhatWholeChunksCan) {
  for (const auto& [p, n] : {std::pair{4, 8}, {4, 16}, {8, 16}, {8, 32}}) {
    EXPECT_NEAR(imbalance_of_sequence(p, n, global_chunks), 1 + 1.0 / n, 1e-12) << "p " << p << ", n " << n;
    EXPECT_NEAR(imbalance_of_sequence(p, n, global_halves), 1, 1e-12) << "p " << p << ", n " << n;
  }
}

TEST(AttentionExchange, OverAWholeStepIsWithinTheBoundOfASequence) {
  for (const auto& [p, n] : {std::pair{4, 8}, {4, 16}, {8, 16}, {8, 32}}) {
    for (const std::int32_t v : {1, 2}) {
      for (const std::int32_t m : {1, 2, 5}) {
        const double paired = imbalance_of_step(p, v, n, m, pairs);
        EXPECT_LE(imbalance_of_step(p, v, n, m, global_chunks), 1 + 1.0 / n) << "p " << p << ", n " << n;
        EXPECT_NEAR(imbalance_of_step(p, v, n, m, global_halves), 1, 1e-12) << "p " << p << ", n " << n;
        if (m > 1) {
          EXPECT_GT(paired, imbalance_of_step(p, v, n, m, global_chunks));
        }
        EXPECT_LE(paired, 1.19);
      }
    }
  }
}

TEST(AttentionExchange, WithAnOddNumberOfRanksIsExactInWholeChunks) {
  EXPECT_NEAR(imbalance_of_sequence(5, 10, global_chunks), 1, 1e-12);
}

}  // namespace
}  // namespace penstock
