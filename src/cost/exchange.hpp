// SPDX-License-Identifier: Apache-2.0
//
// What SlimPipe's attention context exchange (schedule/attention_exchange) makes of the attention of each rank, in the
// middle of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/attention_exchange.hpp"
#include "schedule/cutting.hpp"

namespace penstock {

/// Where a unit of work stands in SlimPipe's order: groups of as many slices as ranks, each through all virtual stages.
struct LockstepUnit {
  std::int32_t ranks = 1;
  std::int32_t virtual_stages = 1;
  std::int32_t slices = 1;  ///< a multiple of ranks
  std::int32_t rank = 0;
  std::int32_t chunk = 0;  ///< virtual stage of the rank
  std::int32_t slice = 0;
};

/// What the exchange makes of it for one rank, in slices as long as its own.
struct BalancedAttention {
  double length = 0;     ///< of keys attended to here with a slice's queries, for itself or for others
  double exchanged = 0;  ///< of keys and values that go to or come from another rank
};

/// The balance of all slots of a micro-batch, computed once. Slice k attends to those before it, and as if to half of
/// itself: where all are equally long, to k + 1/2. Where they differ by a token, ranks hand on what the run hands on,
/// and each piece counts with its own tokens. In a slot rank r works on what rank 0 had r slots ago; beyond a border
/// the next or previous micro-batch follows, as in the middle of a step.
class BalancedLockstep {
 public:
  /// @param shape ranks, virtual stages and slices, those of the cut; the rest does not matter
  BalancedLockstep(const ExchangeRule& rule, const LockstepUnit& shape, const SequenceCut& cut);

  /// @pre the unit has the shape's ranks, virtual stages and slices
  BalancedAttention of(const LockstepUnit& unit) const;

 private:
  std::vector<BalancedAttention> by_slot_and_rank_;
};

}  // namespace penstock
