// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "base/random.hpp"
#include "comm/message.hpp"
#include "comm/posted_messages.hpp"
#include "device/device.hpp"

namespace penstock {

/// The messages of one direction, peer and kind that are not yet posted, in order. Of the progress thread.
class Channel {
 public:
  /// `number` selects the channel's stream of random delays.
  Channel(std::uint64_t number, DelayOptions delays)
      : random_{delays.seed, RandomPurpose::delays, number}, longest_delay_{delays.longest} {}
  void push(std::shared_ptr<Message> message) { waiting_.push_back(std::move(message)); }
  /// Posts the messages at the head whose inputs are complete, and completes those that cannot be posted. When the head
  /// waits for an event, that event will call `wake`. Returns whether anything moved.
  bool advance(PostedMessages& posted, const std::function<void()>& wake);
  /// True while the head has its inputs and only waits for its random delay: nothing will call `wake` then.
  bool is_delayed() const { return !waiting_.empty() && waiting_.front()->earliest.has_value(); }
  /// From now on all messages fail, the waiting ones at once: the order cannot be kept without what failed.
  void fail(const std::exception_ptr& failure);

 private:
  enum class Readiness : std::uint8_t { ready, waiting, failed };
  Readiness readiness_of_head(const std::function<void()>& wake);
  bool may_be_posted(Message& message);

  std::deque<std::shared_ptr<Message>> waiting_;
  std::exception_ptr failure_;
  CounterRandom random_;
  Seconds longest_delay_;
  std::uint64_t delayed_messages_ = 0;
};

}  // namespace penstock
