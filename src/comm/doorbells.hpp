// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/backoff.hpp"
#include "comm/communicator.hpp"
#include "comm/machine_memory.hpp"
#include "comm/signal.hpp"

namespace penstock {

/// Lets the ranks of one machine wake each other: MPI itself can be asked for messages only. A sender that rings after
/// its message is on its way spares the receiver to look for it all the time, and the message the wait for the next
/// look.
class Doorbells {
 public:
  /// Collective over `group`, as is the destructor.
  explicit Doorbells(const Communicator& group);

  /// What this rank sleeps on.
  WakeFlag& own() { return flags()[static_cast<std::size_t>(memory_.ranks().rank())]; }
  /// Whether all ranks of the group are on this machine.
  bool reach_all() const;
  /// Sleeps between two looks for news, until this rank is rung, but not for longer than `backoff` has it, or where all
  /// can ring than 2 ms: against a message that MPI holds back.
  void pause(Backoff& backoff);
  /// Wakes a rank of the group, if it is on this machine.
  void ring(int rank);

 private:
  std::span<WakeFlag> flags() const { return memory_.objects<WakeFlag>(); }

  MachineMemory memory_;
  std::vector<std::optional<std::size_t>> place_;  // by rank of the group: its flag
};

}  // namespace penstock
