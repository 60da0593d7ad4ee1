// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "comm/machine_memory.hpp"

namespace penstock {

/// Modelled links that several ranks share, such as the network card of a node: when each is free, in memory that the
/// ranks of one machine share. Who comes first is served first, by the machine's clock.
///
/// Ranks on another machine have records of their own: a link is shared by those of its users that run on one machine.
/// Where a job is spread as its modelled nodes are, that is all of them.
class SharedLinks {
 public:
  /// Links 0 .. links - 1, all free. Collective over `group`, as is the destructor.
  SharedLinks(const Communicator& group, std::int32_t links);

  /// Takes `link` for `seconds` from now on, or from when it is free, and returns that start. Any thread.
  Seconds take(std::int32_t link, Seconds seconds);

 private:
  using FreeAt = std::atomic<std::int64_t>;  ///< nanoseconds on the machine's clock
  static_assert(FreeAt::is_always_lock_free, "processes share them: a lock would be one of each process");

  MachineMemory memory_;
  std::span<FreeAt> free_at_;
};

}  // namespace penstock
