// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace penstock {

/// The one thread of a process that calls HDF5, which is not thread-safe. Work runs in the order of the calls;
/// collective work (checkpoints) must therefore be handed in in the same order on all ranks.
///
/// The thread has a lower priority than the others: a checkpoint written in the background takes the cores' idle time
/// first.
class IoThread {
 public:
  IoThread();
  /// Finishes the work that was handed in.
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  /// Runs `work` and waits for it; rethrows what it throws.
  void run(std::function<void()> work);
  /// Queues `work`; the future carries what it throws.
  std::future<void> start(std::function<void()> work);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> queue_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace penstock
