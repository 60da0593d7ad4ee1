// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/completion.hpp"
#include "device/device.hpp"

namespace penstock {

/// One thread that runs pieces of work in order of submission, and sleeps while it has none or waits for another queue.
///
/// The destructor finishes (or, after a failure, fails) all that was submitted, then joins. It therefore blocks as long
/// as an event that its work waits for stays undecided: destroy, or fail, what produces such events first. A Completion
/// that is dropped fails its event, so a producer that is gone never blocks anybody.
class HostQueue final : public Queue {
 public:
  /// `number` selects the queue's stream of random delays.
  HostQueue(const std::string& name, std::uint64_t number, DelayOptions delays);
  ~HostQueue() override;
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;
  Event submit(std::vector<Event> after, std::function<void()> work) override;

 private:
  struct Piece {
    std::vector<Event> after;
    std::function<void()> work;
    Completion completion;
  };

  void run();
  std::optional<Piece> next_piece();
  void run_piece(Piece piece);
  void delay();

  const std::uint64_t number_;
  const DelayOptions delays_;
  std::uint64_t delayed_pieces_ = 0;  // of the queue's thread
  std::exception_ptr failure_;        // of the queue's thread: the first, carried by all later pieces
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace penstock
