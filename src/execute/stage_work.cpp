// SPDX-License-Identifier: Apache-2.0
#include "execute/stage_work.hpp"

#include <utility>

#include "base/error.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

/// The bytes that the host has; the device's buffer may be longer, as plans round up.
Bytes bytes_to_copy(const Action& action, const CopyPlace& place, std::span<std::byte> host) {
  const Bytes bytes{static_cast<std::int64_t>(host.size())};
  require(bytes <= place.bytes, "{} copies {} bytes, but its device buffer has {}", to_text(action), bytes.value,
          place.bytes.value);
  return bytes;
}

}  // namespace

Event MemoryWork::copy(const Action& action, const CopyPlace& place, std::vector<Event> after) {
  if (action.op == Op::offload_gradients) {
    const auto host = host_gradients(action.stage);
    const Bytes bytes = bytes_to_copy(action, place, host);
    return place.device->copy_to_host(*place.queue, std::move(after), host.data(), place.data, bytes);
  }
  if (action.op == Op::fetch_forward || action.op == Op::fetch_backward) return fetch(action, place, std::move(after));
  std::byte* const on_host = host_activations() + place.host_offset.value;
  if (action.op == Op::offload_activations) {
    return place.device->copy_to_host(*place.queue, std::move(after), on_host, place.data, place.bytes);
  }
  require(action.op == Op::reload_activations, "{} is no copy between host and device", to_text(action));
  return place.device->copy_to_device(*place.queue, std::move(after), place.data, on_host, place.bytes);
}

}  // namespace penstock
