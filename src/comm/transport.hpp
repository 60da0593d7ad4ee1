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

/// Asynchronous messages between pipeline ranks. A channel is an ordered pair of ranks and a kind of message; within one, sends
/// and receives match in order; different channels never wait for each other (design, section 3).
class Transport {
 public:
  enum class Kind : std::uint8_t { activations, gradients };
  virtual ~Transport() = default;
  /// Queues a send to (receive from) `peer` on the channel of `kind`, after all of `after` and in the order of calls on this
  /// channel. Returns at once; the memory must live until the event. A failed `after` fails the event, without a message.
  virtual Event send(int peer, Kind kind, std::vector<Event> after, const std::byte* data, Bytes bytes) = 0;
  virtual Event receive(int peer, Kind kind, std::vector<Event> after, std::byte* data, Bytes bytes) = 0;
};

/// Over MPI, with one progress thread that sleeps while nothing is pending (and between tests while something is, 20-200 us).
/// `group` is duplicated; ranks are those of the group. `delays`: random waits before messages, for tests.
std::unique_ptr<Transport> make_mpi_transport(const Communicator& group, DelayOptions delays);

}  // namespace penstock
