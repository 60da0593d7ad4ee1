// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/units.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// What ranks read of each other's blocks of memory, on whatever nodes they are: what the NodeMemory of a node gives
/// its own ranks. In a block lie Versions and what they are versions of; who reads has waited for the version, and the
/// owner writes no next one before the read is over.
///
/// Any thread may wait and read, while others use MPI. Construction and destruction are collective; a destructor that
/// an exception calls waits for nobody.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  /// Sleeps until the Version at `place` of the block of `owner` is at least `wanted` (true), or `stop` is set (false).
  virtual bool wait_for(int owner, Bytes place, std::int64_t wanted, const std::atomic<bool>& stop) const = 0;
  /// Fills `out` from the owner's block, from `place` on (true), or gives up because `stop` is set (false): then MPI
  /// may still write to `out`.
  virtual bool read(int owner, Bytes place, std::span<std::byte> out, const std::atomic<bool>& stop) const = 0;
  /// By the owner, after it has published a version in its block.
  virtual void notice_version() = 0;
};

/// Bytes of one message or get: what is read travels in pieces of this size.
constexpr Bytes largest_piece_read{std::int64_t{8} << 20};

/// By messages: a thread of each rank answers for its block `own`, which outlives this, and sends straight from it. It
/// sleeps between looks, and answers what can be answered while other requests wait for their version.
std::unique_ptr<RemoteMemory> make_message_memory(const Communicator& group, std::span<const std::byte> own,
                                                  Bytes largest_piece = largest_piece_read);

/// By MPI_Get from a window of each rank's block `own`, without its owner's help.
/// @throws AgreedError bad_input where MPI gives no such window, or lets a get wait for the owner to enter MPI: seen by
/// a get from an idle rank, in which all wait a second.
std::unique_ptr<RemoteMemory> make_get_memory(const Communicator& group, std::span<std::byte> own,
                                              Bytes largest_piece = largest_piece_read);

}  // namespace penstock
