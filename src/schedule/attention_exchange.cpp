// SPDX-License-Identifier: Apache-2.0
#include "schedule/attention_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace penstock {

namespace {

/// A rank with work in the slot. All counts are in pieces: chunks or halves.
struct Member {
  Rank rank;
  std::int32_t earlier = 0;  ///< chunks before its slice's own: what can be handed on
  std::int32_t wanted = 0;   ///< of them, or of others' in their place, after the exchange
  std::int32_t surplus() const { return earlier - wanted; }
};
using Members = std::vector<Member>;

/// The ranks with work, the shortest slice first; of equal ones the lower rank.
Members members_of(const SlotSlices& slices, std::int32_t pieces) {
  Members members;
  for (const Rank rank : all<Rank>(slices.size())) {
    if (!slices[rank]) continue;
    const std::int32_t earlier = slices[rank]->value() * pieces;
    members.push_back({rank, earlier, earlier});
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.earlier < b.earlier; });
  return members;
}

void level_pairs(Members& members) {
  for (std::size_t i = 0; i < members.size() / 2; ++i) {
    Member& shorter = members[i];
    Member& longer = members[members.size() - 1 - i];
    const std::int32_t moved = (longer.earlier - shorter.earlier) / 2;
    shorter.wanted += moved;
    longer.wanted -= moved;
  }
}

/// As equal as pieces allow; the longest keep what is left over, so that the least moves.
void level_all(Members& members) {
  std::int32_t sum = 0;
  for (const Member& member : members) sum += member.earlier;
  const auto count = static_cast<std::int32_t>(members.size());
  for (std::int32_t i = 0; i < count; ++i) {
    members[static_cast<std::size_t>(i)].wanted = sum / count + (i >= count - sum % count ? 1 : 0);
  }
}

std::vector<ChunkShare> by_owner(std::vector<ChunkShare> shares) {
  std::stable_sort(shares.begin(), shares.end(),
                   [](const ChunkShare& a, const ChunkShare& b) { return a.owner < b.owner; });
  return shares;
}

/// Lets the largest surplus go to whom most is wanting, and so on down both.
class Dealer {
 public:
  Dealer(Members members, std::int32_t halves) : halves_{halves} {
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.surplus() > b.surplus(); });
    members_ = std::move(members);
  }

  std::vector<ChunkShare> deal() {
    std::size_t helper = members_.size();
    std::int32_t wanting = 0;
    for (const Member& owner : members_) {
      std::int32_t given = 0;
      while (given < owner.surplus()) {
        if (wanting == 0) wanting = -members_[--helper].surplus();
        const std::int32_t moved = std::min(owner.surplus() - given, wanting);
        shares_.push_back({owner.rank, members_[helper].rank, given * halves_, (given + moved) * halves_});
        given += moved;
        wanting -= moved;
      }
    }
    return by_owner(std::move(shares_));
  }

 private:
  Members members_;
  std::int32_t halves_;  // of a piece
  std::vector<ChunkShare> shares_;
};

/// Each pair for itself: between ranks of different pairs nothing moves.
std::vector<ChunkShare> deal_in_pairs(const Members& members, std::int32_t halves) {
  std::vector<ChunkShare> shares;
  for (std::size_t i = 0; i < members.size() / 2; ++i) {
    const Member& owner = members[members.size() - 1 - i];
    if (owner.surplus() > 0) shares.push_back({owner.rank, members[i].rank, 0, owner.surplus() * halves});
  }
  return by_owner(std::move(shares));
}

}  // namespace

ExchangeRule exchange_rule(Exchange exchange, std::optional<ExchangeGrain> grain) {
  return {exchange, grain.value_or(exchange == Exchange::global ? ExchangeGrain::half : ExchangeGrain::chunk)};
}

std::vector<ChunkShare> share_attention(ExchangeRule rule, const SlotSlices& slices) {
  const std::int32_t pieces = rule.grain == ExchangeGrain::half ? 2 : 1;  // of a chunk
  const std::int32_t halves = 2 / pieces;
  Members members = members_of(slices, pieces);
  switch (rule.exchange) {
    case Exchange::none:
      return {};
    case Exchange::pairwise:
      level_pairs(members);
      return deal_in_pairs(members, halves);
    case Exchange::global:
      level_all(members);
      return Dealer{std::move(members), halves}.deal();
  }
  return {};
}

}  // namespace penstock
