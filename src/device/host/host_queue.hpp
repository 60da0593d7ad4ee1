// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/completion.hpp"
#include "device/device.hpp"

namespace penstock {

/// One thread that runs pieces of work in order of submission, and sleeps while it has none or waits for another queue.
/// Before it falls asleep over what a piece waits for, it runs the next early piece whose own waits are over.
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
  Event submit_early(std::vector<Event> after, std::function<void()> work) override;

 private:
  enum class Turn : std::uint8_t { own, own_or_earlier };
  struct Piece {
    std::vector<Event> after;
    std::function<void()> work;
    Turn turn = Turn::own;
    Completion completion;
  };
  using PiecePointer = std::shared_ptr<Piece>;

  Event submit(Piece piece);
  void run();
  PiecePointer next_piece();
  PiecePointer next_early_piece();
  void run_piece(Piece& piece);
  void wait_for(const Event& event, Turn turn);
  void delay();

  const std::uint64_t number_;
  const DelayOptions delays_;
  std::uint64_t delayed_pieces_ = 0;  // of the queue's thread
  std::exception_ptr failure_;        // of the queue's thread: the first, carried by all later pieces
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PiecePointer> waiting_;
  std::deque<PiecePointer> early_;  // of those waiting, the ones that may run before their turn
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace penstock
