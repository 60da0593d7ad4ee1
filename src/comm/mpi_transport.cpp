// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include <pthread.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/backoff.hpp"
#include "comm/channel.hpp"
#include "comm/doorbells.hpp"
#include "comm/message.hpp"
#include "comm/posted_messages.hpp"
#include "comm/signal.hpp"
#include "comm/transport.hpp"

namespace penstock {
namespace {

/// How long the destructor waits for sends that no peer has taken.
constexpr Seconds longest_wait_for_takers{1.0};

class MpiTransport final : public Transport {
 public:
  MpiTransport(const Communicator& group, DelayOptions delays, Bytes largest_piece, Looks looks)
      : group_{group.duplicate()},
        delays_{delays},
        bells_{looks == Looks::by_bells ? std::make_unique<Doorbells>(group_) : nullptr},
        signal_{std::make_shared<Signal>(bells_ ? &bells_->own() : nullptr)},
        posted_{group_, largest_piece},
        thread_{[this] { run(); }} {}

  ~MpiTransport() override {
    is_closing_.store(true);
    signal_->raise();
    thread_.join();
    signal_->detach();
  }

  Event send(int peer, Kind kind, std::vector<Event> after, const std::byte* data, Bytes bytes) override {
    auto message = make_message(Direction::send, peer, kind, std::move(after), bytes);
    message->source = data;
    return submit(std::move(message));
  }

  Event receive(int peer, Kind kind, std::vector<Event> after, std::byte* data, Bytes bytes) override {
    auto message = make_message(Direction::receive, peer, kind, std::move(after), bytes);
    message->destination = data;
    return submit(std::move(message));
  }

 private:
  using MessagePointer = std::shared_ptr<Message>;
  using ChannelKey = std::tuple<Direction, int, int>;  // direction, peer, tag

  MessagePointer make_message(Direction direction, int peer, Kind kind, std::vector<Event> after, Bytes bytes) const;
  Event submit(MessagePointer message);

  void run();
  void accept_new_messages();
  bool advance_channels();
  bool take_finished();
  void pause(Backoff& backoff);
  void close();
  Channel& channel_of(const Message& message);

  Communicator group_;
  DelayOptions delays_;
  std::unique_ptr<Doorbells> bells_;  // null: ranks look by themselves
  // Shared with the callbacks on events, which may come when the transport is gone.
  std::shared_ptr<Signal> signal_;
  std::atomic<bool> is_closing_{false};
  std::mutex mutex_;
  std::vector<MessagePointer> new_messages_;  // under mutex_

  // What follows belongs to the progress thread.
  std::map<ChannelKey, Channel> channels_;
  PostedMessages posted_;
  std::thread thread_;
};

MpiTransport::MessagePointer MpiTransport::make_message(Direction direction, int peer, Kind kind,
                                                        std::vector<Event> after, Bytes bytes) const {
  require(peer >= 0 && peer < group_.size(), "a message with rank {} in a group of {} ranks", peer, group_.size());
  require(bytes.value >= 0, "a message of {} bytes", bytes.value);
  auto message = std::make_shared<Message>();
  message->direction = direction;
  message->peer = peer;
  message->tag = static_cast<int>(kind);
  message->after = std::move(after);
  message->bytes = bytes.value;
  return message;
}

Event MpiTransport::submit(MessagePointer message) {
  Event event = message->completion.event();
  {
    const std::lock_guard lock{mutex_};
    new_messages_.push_back(std::move(message));
  }
  signal_->raise();
  return event;
}

void MpiTransport::run() {
  pthread_setname_np(pthread_self(), "transport");
  sharpen_sleeps();
  Backoff backoff;
  while (!is_closing_.load()) {
    accept_new_messages();
    const bool has_posted = advance_channels();
    const bool has_finished = take_finished();
    if (has_posted || has_finished) {
      backoff.reset();
    } else {
      pause(backoff);
    }
  }
  close();
}

Channel& MpiTransport::channel_of(const Message& message) {
  const ChannelKey key{message.direction, message.peer, message.tag};
  const auto found = channels_.find(key);
  if (found != channels_.end()) return found->second;
  // The stream of delays: unique for (peer, tag, direction).
  const auto number = static_cast<std::uint64_t>((message.peer * kind_count + message.tag) * 2) +
                      static_cast<std::uint64_t>(message.direction);
  return channels_.try_emplace(key, number, delays_).first->second;
}

void MpiTransport::accept_new_messages() {
  std::vector<MessagePointer> accepted;
  {
    const std::lock_guard lock{mutex_};
    accepted.swap(new_messages_);
  }
  for (auto& message : accepted) channel_of(*message).push(message);
}

bool MpiTransport::advance_channels() {
  const auto wake = [signal = signal_] { signal->raise(); };
  bool has_moved = false;
  for (auto& [key, channel] : channels_) has_moved = channel.advance(posted_, wake) || has_moved;
  for (const int peer : posted_.take_peers_sent_to()) {
    if (bells_) bells_->ring(peer);
  }
  return has_moved;
}

/// Completes what MPI has finished. A failed message fails its channel too: the peer may be out of step.
bool MpiTransport::take_finished() {
  const auto finished = posted_.test();
  for (const auto& message : finished) {
    if (message->failure) channel_of(*message).fail(message->failure);
    complete(*message);
  }
  return !finished.empty();
}

/// Sleeps until something can have changed: without end when only a new message or an event can change anything.
void MpiTransport::pause(Backoff& backoff) {
  const bool is_delayed =
      std::any_of(channels_.begin(), channels_.end(), [](const auto& c) { return c.second.is_delayed(); });
  if (posted_.empty() && !is_delayed) {
    signal_->wait();
    backoff.reset();
    return;
  }
  if (bells_ && !is_delayed) return bells_->pause(backoff);
  const Seconds length = backoff.next();
  if (length.value > 0 && signal_->wait(length)) backoff.reset();
}

void MpiTransport::close() {
  accept_new_messages();
  advance_channels();
  const auto closed = std::make_exception_ptr(
      Error{ExitCode::internal, "the transport was closed before what this message waited for was complete"});
  for (auto& [key, channel] : channels_) channel.fail(closed);
  posted_.cancel_receives();
  Backoff backoff;
  for (const Seconds start = now(); !posted_.empty() && now() - start < longest_wait_for_takers; backoff.pause())
    take_finished();
  posted_.abandon();
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const Communicator& group, DelayOptions delays, Bytes largest_piece,
                                              Looks looks) {
  return std::make_unique<MpiTransport>(group, delays, largest_piece, looks);
}

}  // namespace penstock
