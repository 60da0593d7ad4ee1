// SPDX-License-Identifier: Apache-2.0
#include "comm/nodes.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace penstock {
namespace {

Communicator ranks_of_node(const Communicator& group, std::optional<std::int32_t> ranks_per_node) {
  auto machine = group.split_by_machine();
  if (!ranks_per_node) return machine;
  require(*ranks_per_node >= 1, "nodes of {} ranks", *ranks_per_node);
  return machine.split(Communicator::world().rank() / *ranks_per_node, machine.rank());
}

}  // namespace

Nodes::Nodes(const Communicator& group, std::optional<std::int32_t> ranks_per_node)
    : group_{&group}, own_{ranks_of_node(group, ranks_per_node)} {
  const std::int64_t first = -own_.maximum(std::int64_t{-group.rank()});
  node_ = group.all_gather(first);
  for (std::size_t rank = 0; rank < node_.size(); ++rank) count_ += node_[rank] == static_cast<std::int64_t>(rank);
}

std::optional<int> Nodes::place(int rank) const {
  const auto at = node_.begin() + rank;
  const auto own_node = node_[static_cast<std::size_t>(group_->rank())];
  if (*at != own_node) return std::nullopt;
  return static_cast<int>(std::count(node_.begin(), at, own_node));
}

}  // namespace penstock
