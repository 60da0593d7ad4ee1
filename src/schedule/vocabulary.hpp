// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary parallelism over the pipeline (SlimPipe; methods 3.5): embedding, output layer and loss are cut by rows of
// the vocabulary over all ranks, which work on them together, slice by slice.
#pragma once

#include <cstdint>

#include "base/index.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// Rows [begin, begin + count) of the vocabulary's matrices.
struct VocabularyRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return begin + count; }
  friend bool operator==(const VocabularyRows&, const VocabularyRows&) = default;
};

/// The rows of a rank's share: shares differ by at most one row, the longer ones come first. @pre vocabulary >= ranks
VocabularyRows rows_of_share(std::int64_t vocabulary, std::int32_t ranks, Rank rank);

/// Adds EF, VF, VB and EB of every slice to the lists of all ranks.
///
/// The ranks' forwards and backwards are put into slots, each with at most one forward and then one backward of a rank,
/// as SlimPipe's lockstep runs them. EF stands at the beginning of the slot in which the first stage has its F, VF
/// behind the forwards of the slot in which the last stage has its own, VB before the backwards of the slot of the last
/// stage's, EB at the end of that of the first stage's. So all lists together are one sequence cut up by rank: no rank
/// waits for another in a circle, and when the ranks meet, none of them is in the middle of an action.
/// @pre compute actions only, which can run; passes share their stages
Schedule share_vocabulary(const Schedule& schedule);

}  // namespace penstock
