// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"

namespace penstock {

/// Which ranks of a group are on one node, and so can share memory.
class Nodes {
 public:
  /// Collective over `group`, which outlives this. A node is a machine or, given `ranks_per_node` (K >= 1), the part of
  /// a machine whose ranks of the job, divided by K, are the same: so that one machine can pass for several.
  Nodes(const Communicator& group, std::optional<std::int32_t> ranks_per_node);

  const Communicator& group() const { return *group_; }
  /// The ranks of this one's node, in the order of the group.
  const Communicator& own() const { return own_; }
  /// The rank of `own()` that is `rank` of the group; nothing if it is on another node.
  std::optional<int> place(int rank) const;
  int count() const { return count_; }

 private:
  const Communicator* group_;
  Communicator own_;
  std::vector<std::int64_t> node_;  // by rank of the group: the first rank of its node
  int count_ = 0;
};

}  // namespace penstock
