// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/units.hpp"
#include "comm/shared_links.hpp"
#include "comm/transport.hpp"
#include "device/device.hpp"

namespace penstock {

/// What a message costs on its modelled wire.
struct WirePrice {
  Seconds seconds;                  ///< from its start to its end
  std::vector<std::int32_t> links;  ///< the shared ones that it takes for so long
};
using WirePrices = std::function<WirePrice(int from, int to)>;

/// The transport of the priced device: real messages over `messages`, without their contents, which nobody reads, and
/// with the wire's time waited at both ends.
///
/// A message starts when both ends are ready and its channel and link are free: the receiver says that it is, the
/// sender waits for that and for its inputs, takes the link, and sends a message of no bytes. The sender's event comes
/// after that moment by the price, the receiver's by the price after the moment at which it saw the message. So a
/// message never ends earlier than the simulator has it (its two ends as one), and later by what the real messages and
/// the waking of threads took.
///
/// `rank` is this one's in the group of `messages`. `device` makes the queues in which the waits pass, one for each
/// channel and direction. `links` may be null if no price names one; it and the device outlive the transport.
std::unique_ptr<Transport> make_priced_transport(std::unique_ptr<Transport> messages, int rank, WirePrices prices,
                                                 Device& device, SharedLinks* links);

}  // namespace penstock
