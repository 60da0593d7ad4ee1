// SPDX-License-Identifier: Apache-2.0
#include "comm/channel.hpp"

#include <utility>

namespace penstock {

void Channel::fail(const std::exception_ptr& failure) {
  if (!failure_) failure_ = failure;
  const auto dropped = std::exchange(waiting_, {});
  for (const auto& message : dropped) message->completion.fail(failure_);
}

/// Drops complete inputs from the head. A failed one fails the channel, and with it the head.
Channel::Readiness Channel::readiness_of_head(const std::function<void()>& wake) {
  Message& head = *waiting_.front();
  while (!head.after.empty()) {
    const Event& input = head.after.back();
    if (!input.is_complete()) {
      if (!std::exchange(head.is_watched, true)) input.state()->on_complete(wake);
      return Readiness::waiting;
    }
    if (auto failure = input.state() ? input.state()->failure() : nullptr) {
      fail(failure);
      return Readiness::failed;
    }
    head.after.pop_back();
    head.is_watched = false;
  }
  return Readiness::ready;
}

/// With random delays: whether the delay of the message, drawn when its inputs are first seen complete, is over.
bool Channel::may_be_posted(Message& message) {
  if (longest_delay_.value <= 0) return true;
  if (!message.earliest) {
    message.earliest = now() + Seconds{longest_delay_.value * random_.uniform(delayed_messages_++)};
  }
  return now() >= *message.earliest;
}

bool Channel::advance(PostedMessages& posted, const std::function<void()>& wake) {
  bool has_moved = false;
  if (failure_ && !waiting_.empty()) {
    fail(failure_);
    return true;
  }
  while (!waiting_.empty()) {
    const auto readiness = readiness_of_head(wake);
    if (readiness == Readiness::failed) return true;
    if (readiness == Readiness::waiting || !may_be_posted(*waiting_.front())) return has_moved;
    const auto message = std::move(waiting_.front());
    waiting_.pop_front();
    if (posted.post(message)) complete(*message);
    if (message->failure) fail(message->failure);
    has_moved = true;
  }
  return has_moved;
}

}  // namespace penstock
