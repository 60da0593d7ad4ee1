// SPDX-License-Identifier: Apache-2.0
#include "execute/attention_sharing.hpp"

#include <utility>

namespace penstock {

void TransportMessages::send(Rank to, std::span<const std::byte> data) {
  const Bytes bytes{static_cast<std::int64_t>(data.size())};
  sent_.push_back(transport_->send(to.value(), Transport::Kind::attention, {}, data.data(), bytes));
}

void TransportMessages::receive(Rank from, std::span<std::byte> data) {
  const Bytes bytes{static_cast<std::int64_t>(data.size())};
  received_[from].push_back(transport_->receive(from.value(), Transport::Kind::attention, {}, data.data(), bytes));
}

void TransportMessages::wait_for(Rank from) {
  wait(received_[from]);
}

void TransportMessages::wait_for_sends() {
  wait(sent_);
}

void TransportMessages::wait(std::vector<Event>& events) {
  waits_.count([&] {
    for (const Event& event : std::exchange(events, {})) event.wait();
  });
}

AttentionSharing::AttentionSharing(const Schedule& schedule, Rank rank, std::int64_t layers, Transport& transport)
    : messages_{transport} {
  const Lockstep lockstep{schedule};
  for (const LockstepSlot& slot : lockstep.slots()) {
    for (const SlotMember& member : slot.members) {
      if (member.rank != rank) continue;
      ActionShares shares = shares_of(slot, rank);
      if (!shares.empty()) partners_[member.action] = {std::move(shares), layers, &messages_};
    }
  }
}

const AttentionPartners* AttentionSharing::partners_of(const Action& action) const {
  const auto found = partners_.find(action);
  return found == partners_.end() ? nullptr : &found->second;
}

}  // namespace penstock
