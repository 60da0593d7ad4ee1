// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/index.hpp"
#include "comm/communicator.hpp"
#include "comm/doorbells.hpp"

namespace penstock {

/// Lets ranks wait for each other in the middle of their work, some of them or all.
///
/// Each tells those that it meets by a message without contents, from the thread that waits and to the thread that
/// waits: on one machine a single wake-up lies between the last to come and the others. For one thread of each rank.
class Meeting {
 public:
  /// Collective over `group`, as is the destructor.
  explicit Meeting(const Communicator& group);

  /// Returns when all of `ranks` have called this with the caller among theirs, as often as the caller has with them.
  /// Asleep meanwhile. Two ranks that meet several times, with whomever else, come to that in the same order.
  void wait_for(const std::vector<Rank>& ranks);

 private:
  Communicator group_;
  Doorbells bells_;
};

}  // namespace penstock
