// SPDX-License-Identifier: Apache-2.0
//
// Which wires bytes take, and how long. Device d stands on node d / node.devices. A rank of a pipeline is tensor x
// context devices; ranks are `stride` devices apart. With the ranks of a pipeline side by side the stride is those
// devices, and replicas follow on further nodes; with the replicas side by side it is those of all replicas.
#pragma once

#include <cstdint>
#include <optional>

#include "base/index.hpp"
#include "base/units.hpp"
#include "cost/hardware.hpp"
#include "cost/shape.hpp"
#include "schedule/action.hpp"

namespace penstock {

class Links {
 public:
  Links(const CostShape& shape, const HardwareOptions& hardware);

  /// How long a message of this many bytes of each device of `from` takes to its counterparts of `to`; the devices of a
  /// rank, and of its replicas beside it, that share a link halve it. 0 within a rank, and on unit hardware.
  Seconds wire_seconds(Rank from, Rank to, Bytes bytes) const;

  /// The wire that the message shares with messages of other ranks, in its direction: one at a time can be under way
  /// on each. Empty if it has one of its own. Wires inside nodes and between them have different numbers.
  std::optional<std::int32_t> shared_resource(Rank from, Rank to) const;

  /// The same for copies between host and device. @pre lane is to_device or to_host
  Seconds copy_seconds(Lane lane, Bytes bytes) const;
  std::optional<std::int32_t> shared_copy(Rank rank, Lane lane) const;

  bool share_node(Rank a, Rank b) const;

  /// Parameters from the host memory of this node and, one after the other, of other nodes. All devices that share an
  /// adapter fetch at once, as at the turns of a breadth-first schedule: each gets its part of it.
  Seconds fetch_seconds(double of_this_node, double of_other_nodes) const;

  /// A ring over `members` devices, `stride` apart, as all of their node mates have: each sends `bytes` in `steps`
  /// messages. A ring leaves a node once, and the rings of a node share all its adapters (NCCL lays rings that way,
  /// with a channel for each adapter); no message is faster than a link inside the node.
  Seconds ring_seconds(std::int32_t members, std::int32_t stride, double bytes, std::int32_t steps) const;

  /// A collective over `members` consecutive devices, `stride` apart, all of whose node mates do the same: each sends
  /// `bytes` in `steps` messages.
  Seconds collective_seconds(std::int32_t members, std::int32_t stride, double bytes, std::int32_t steps) const;

 private:
  const LinkFigures& between(Rank from, Rank to) const;
  const LinkFigures& copies(Lane lane) const;
  std::optional<std::int32_t> wire_of(Rank rank, const LinkFigures& link) const;

  HardwareOptions hardware_;
  std::int32_t stride_;  ///< devices from a rank to the next
};

}  // namespace penstock
