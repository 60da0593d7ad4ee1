// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "comm/communicator.hpp"
#include "execute/lane_waits.hpp"
#include "stage/vocabulary.hpp"

namespace penstock {

/// The ranks of a pipeline over a communicator that the compute lane alone uses. The lane waits while a message is on
/// its way.
class PipelinePeers : public VocabularyPeers {
 public:
  explicit PipelinePeers(Communicator pipeline) : pipeline_{std::move(pipeline)} {}
  void send(std::span<const std::byte> data, Rank to) override {
    waits_.count([&] { pipeline_.send(data, to.value(), tag); });
  }
  void receive(std::span<std::byte> data, Rank from) override {
    waits_.count([&] { pipeline_.receive(data, from.value(), tag); });
  }
  void exchange(std::span<const std::byte> out, Rank to, std::span<std::byte> in, Rank from) override {
    waits_.count([&] { pipeline_.exchange(out, to.value(), in, from.value(), tag); });
  }
  /// What the calls took since it was last asked.
  Seconds take_waited() { return waits_.take(); }

 private:
  static constexpr int tag = 1;
  Communicator pipeline_;
  LaneWaits waits_;
};

}  // namespace penstock
