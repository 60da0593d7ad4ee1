// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "comm/transport.hpp"
#include "execute/lane_waits.hpp"
#include "schedule/lockstep.hpp"
#include "schedule/schedule.hpp"
#include "stage/shared_attention.hpp"

namespace penstock {

/// The messages of shared attention over a transport of the pipeline's ranks.
///
/// No delay lets ranks wait for each other in a circle. An action waits for messages of its own slot and layer alone.
/// All ranks of a slot come to it, since what is before it in their lists waits for earlier slots only (the validator
/// has found no cycle, V5); of its layers they come to the same ones in the same order. There each posts its receives
/// and what it hands on before it waits; and what a helper sends back waits for what was handed to it alone, which no
/// rank delays: whoever hands on helps nobody.
class TransportMessages final : public AttentionMessages {
 public:
  explicit TransportMessages(Transport& transport) : transport_{&transport} {}
  void send(Rank to, std::span<const std::byte> data) override;
  void receive(Rank from, std::span<std::byte> data) override;
  void wait_for(Rank from) override;
  void wait_for_sends() override;
  /// What these two took since it was last asked.
  Seconds take_waited() { return waits_.take(); }

 private:
  void wait(std::vector<Event>& events);

  Transport* transport_;
  std::map<Rank, std::vector<Event>> received_;
  std::vector<Event> sent_;
  LaneWaits waits_;
};

/// With whom each action of a rank shares its attention.
class AttentionSharing {
 public:
  /// `layers`: of each stage those that share, as many as all stages have. The transport outlives the object.
  AttentionSharing(const Schedule& schedule, Rank rank, std::int64_t layers, Transport& transport);
  AttentionSharing(const AttentionSharing&) = delete;
  AttentionSharing& operator=(const AttentionSharing&) = delete;

  /// Null for an action that shares with nobody.
  const AttentionPartners* partners_of(const Action& action) const;
  /// Seconds that actions waited for their partners since it was last asked.
  Seconds take_waited() { return messages_.take_waited(); }

 private:
  TransportMessages messages_;
  std::map<Action, AttentionPartners> partners_;
};

}  // namespace penstock
