// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "device/completion.hpp"
#include "device/device.hpp"

namespace penstock {

enum class Direction : std::uint8_t { send, receive };

/// One message of a Transport, from the call that queues it to its completion.
struct Message {
  Direction direction = Direction::send;
  int peer = 0;
  int tag = 0;
  std::vector<Event> after;           // those not yet seen complete
  const std::byte* source = nullptr;  // of a send
  std::byte* destination = nullptr;   // of a receive
  std::int64_t bytes = 0;
  Completion completion;

  // What follows belongs to the progress thread.
  bool is_watched = false;          // the last of `after` will wake the progress thread
  std::optional<Seconds> earliest;  // with random delays: when it may be posted
  Seconds started;                  // when it was posted
  int pieces_left = 0;              // posted and not yet complete
  std::exception_ptr failure;
};

/// Decides the event of a message, by its `failure`.
inline void complete(Message& message) {
  if (message.failure) {
    message.completion.fail(message.failure, message.started);
  } else {
    message.completion.succeed(message.started);
  }
}

}  // namespace penstock
