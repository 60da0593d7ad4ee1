// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/describe.hpp"
#include "device/device.hpp"

namespace penstock {

enum class DeviceKind : std::uint8_t {
  host,   ///< asynchronous queues and an arena in host memory
  priced  ///< the same queues and messages, but modelled waits in place of work, and no memory
};

constexpr std::array<EnumName<DeviceKind>, 2> enum_names(DeviceKind) {
  return {{{DeviceKind::host, "host"}, {DeviceKind::priced, "priced"}}};
}

/// The section `device` of a deck.
struct DeviceOptions {
  DeviceKind kind = DeviceKind::host;
  std::int32_t threads = 1;  ///< of one rank
  double time_scale = 1;     ///< of the priced device: factor of all prices
  friend bool operator==(const DeviceOptions&, const DeviceOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, DeviceOptions& options) {
  visit("kind", options.kind,
        {.help =
             "what a rank computes on; host: the processor; priced: nothing, each action waits for as long as it would "
             "take on the hardware of the deck, while messages are real and no data are read",
         .not_yet = "cuda"});
  visit("threads", options.threads,
        {.help = "threads that one rank computes with", .unit = "threads", .range = between(1, 4096)});
  visit(
      "time_scale", options.time_scale,
      {.help = "priced: factor of all times; with 0.005 a second of unit hardware takes 5 ms", .range = more_than(0)});
}

template <class Visitor>
void describe(Visitor& visit, DelayOptions& options) {
  visit("seed", options.seed, {.help = "seed of the waits"});
  visit("longest", options.longest,
        {.help = "longest random wait before queued work and messages; 0: none", .range = between(0, 60)});
}

}  // namespace penstock
