// SPDX-License-Identifier: Apache-2.0
#include "comm/priced_transport.hpp"

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/message.hpp"
#include "device/priced/wait.hpp"

namespace penstock {
namespace {

constexpr Bytes nothing{0};

Transport::Kind ready_for(Transport::Kind kind) {
  switch (kind) {
    case Transport::Kind::activations:
      return Transport::Kind::ready_for_activations;
    case Transport::Kind::gradients:
      return Transport::Kind::ready_for_gradients;
    case Transport::Kind::checkpoints:
      return Transport::Kind::ready_for_checkpoints;
    case Transport::Kind::attention:  // the priced device forms none
    case Transport::Kind::ready_for_activations:
    case Transport::Kind::ready_for_gradients:
    case Transport::Kind::ready_for_checkpoints:
      break;
  }
  fail(ExitCode::internal, "a priced message of kind {}, which is for the transport's own", static_cast<int>(kind));
}

class PricedTransport final : public Transport {
 public:
  PricedTransport(std::unique_ptr<Transport> messages, int rank, WirePrices prices, Device& device, SharedLinks* links)
      : rank_{rank}, prices_{std::move(prices)}, device_{&device}, links_{links}, messages_{std::move(messages)} {}

  Event send(int peer, Kind kind, std::vector<Event> after, const std::byte* /*data*/, Bytes /*bytes*/) override {
    const std::lock_guard lock{mutex_};
    auto& channel = channel_of(Direction::send, peer, kind);
    const WirePrice price = prices_(rank_, peer);
    // One at a time, so that MPI is asked about one for each channel, and not for all of a step.
    channel.peer_ready = messages_->receive(peer, ready_for(kind), {channel.peer_ready}, nullptr, nothing);
    // Looked at from the last: an input that failed is not kept waiting for a receiver that may never be ready.
    after.insert(after.begin(), {channel.peer_ready, channel.last});
    if (!price.links.empty()) after = {take_links(channel, std::move(after), price)};
    const Event left = messages_->send(peer, kind, std::move(after), nullptr, nothing);
    channel.last = behind(channel, left, price.seconds);
    return channel.last;
  }

  Event receive(int peer, Kind kind, std::vector<Event> after, std::byte* /*data*/, Bytes /*bytes*/) override {
    const std::lock_guard lock{mutex_};
    auto& channel = channel_of(Direction::receive, peer, kind);
    after.push_back(channel.last);
    const Event ready = messages_->send(peer, ready_for(kind), std::move(after), nullptr, nothing);
    const Event arrived = messages_->receive(peer, kind, {ready}, nullptr, nothing);
    channel.last = behind(channel, arrived, prices_(peer, rank_).seconds);
    return channel.last;
  }

 private:
  struct Channel {
    std::unique_ptr<Queue> waits;
    Event last;        ///< the end of the newest message
    Event peer_ready;  ///< of a sender: the newest word of the receiver
  };

  Channel& channel_of(Direction direction, int peer, Kind kind) {
    Channel& channel = channels_[{direction, peer, kind}];
    if (!channel.waits) channel.waits = device_->make_queue(direction == Direction::send ? "wire_out" : "wire_in");
    return channel;
  }

  Event take_links(Channel& channel, std::vector<Event> after, const WirePrice& price) {
    require(links_ != nullptr, "a message takes link {}, but no links are shared", price.links.front());
    return channel.waits->submit(std::move(after), [links = links_, price] {
      for (const auto link : price.links) wait_until(links->take(link, price.seconds));
    });
  }

  /// An event that comes after `start` by the price.
  static Event behind(Channel& channel, const Event& start, Seconds price) {
    if (price.value <= 0) return start;
    return channel.waits->submit({start}, [price] { wait_until(now() + price); });
  }

  int rank_;
  WirePrices prices_;
  Device* device_;
  SharedLinks* links_;
  std::mutex mutex_;
  // The queues wait for events of the messages: those end first, and with them what waits.
  std::map<std::tuple<Direction, int, Kind>, Channel> channels_;
  std::unique_ptr<Transport> messages_;
};

}  // namespace

std::unique_ptr<Transport> make_priced_transport(std::unique_ptr<Transport> messages, int rank, WirePrices prices,
                                                 Device& device, SharedLinks* links) {
  return std::make_unique<PricedTransport>(std::move(messages), rank, std::move(prices), device, links);
}

}  // namespace penstock
