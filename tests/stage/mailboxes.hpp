// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/index.hpp"

namespace penstock::test {

/// Messages between threads, each of which is a rank; in order for each pair.
class Mailboxes {
 public:
  void send(std::span<const std::byte> data, Rank from, Rank to) {
    const std::lock_guard lock{mutex_};
    boxes_[{from, to}].emplace_back(data.begin(), data.end());
    ++sent_;
    changed_.notify_all();
  }
  /// Waits for the next message, which must have the size of `data`.
  void receive(std::span<std::byte> data, Rank from, Rank to) {
    std::unique_lock lock{mutex_};
    auto& box = boxes_[{from, to}];
    changed_.wait(lock, [&] { return !box.empty(); });
    const auto message = std::move(box.front());
    box.pop_front();
    ASSERT_EQ(message.size(), data.size());
    std::copy(message.begin(), message.end(), data.begin());
  }
  /// Whether all that was sent has been received. @pre no thread sends or receives
  bool are_empty() const {
    return std::all_of(boxes_.begin(), boxes_.end(), [](const auto& box) { return box.second.empty(); });
  }
  /// How many messages were sent. @pre no thread sends
  std::int64_t sent() const { return sent_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Rank, Rank>, std::deque<std::vector<std::byte>>> boxes_;  // by sender and receiver
  std::int64_t sent_ = 0;
};

}  // namespace penstock::test
