// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"

namespace penstock {

/// Asynchronous messages between pipeline ranks. A channel is an ordered pair of ranks and a kind of message; within
/// one, sends and receives match in order; different channels never wait for each other (design, section 3).
class Transport {
 public:
  enum class Kind : std::uint8_t {
    activations,
    gradients,
    checkpoints,
    attention,              ///< between ranks that share the attention of a slot
    ready_for_activations,  ///< what a receiver tells the sender of a priced message (priced_transport.hpp)
    ready_for_gradients,
    ready_for_checkpoints
  };
  static constexpr int kind_count = 7;
  virtual ~Transport() = default;
  /// Any thread may call. Queues a send to (receive from) `peer` on the channel of `kind`, after all of `after` and in
  /// the order of calls on this channel. Returns at once; the memory must live until the event. A failed `after` fails
  /// the event, without a message.
  virtual Event send(int peer, Kind kind, std::vector<Event> after, const std::byte* data, Bytes bytes) = 0;
  virtual Event receive(int peer, Kind kind, std::vector<Event> after, std::byte* data, Bytes bytes) = 0;
};

/// Over MPI, with one progress thread that sleeps while nothing is pending (and between tests while something is,
/// 20-200 us). `group` is duplicated; ranks are those of the group, and oneself may be a peer. Messages above
/// `largest_piece` bytes travel in pieces; all ranks must say the same. `delays`: random waits before messages, for
/// tests.
///
/// A send is given to MPI as soon as its inputs and those of the messages before it in its channel are complete; a
/// receive is posted in the same way, however early that is. Events: started when given to MPI, finished when seen
/// complete. A message that fails (its inputs failed, MPI refused it, or the peer's message has another length) fails
/// all later ones of its channel, whose order cannot be kept; the peer knows nothing of it, so a rank that sees a
/// failure ends the job (MpiEnvironment::abort).
///
/// Wait for the events before destroying the transport: the destructor fails what still waits for inputs, takes back
/// receives that no message has met, allows sends a second to be taken by their peers, and gives up the rest with a
/// warning.
///
/// `looks` says how a rank learns that a message has come. By bells, ranks of one machine wake each other after each
/// send, and look on their own every 2 ms only, if no rank is elsewhere: for small messages, which need no further
/// exchange. Construction and destruction are then collective.
enum class Looks : std::uint8_t { by_themselves, by_bells };
std::unique_ptr<Transport> make_mpi_transport(const Communicator& group, DelayOptions delays,
                                              Bytes largest_piece = Bytes{std::int64_t{1} << 30},
                                              Looks looks = Looks::by_themselves);

}  // namespace penstock
