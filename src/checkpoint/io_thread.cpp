// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/io_thread.hpp"

#include <utility>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace penstock {
namespace {

/// On Linux, priorities belong to threads; where lowering one is refused it stays as it is.
constexpr int lower_priority = 10;

}  // namespace

IoThread::IoThread() : thread_{[this] { serve(); }} {}

IoThread::~IoThread() {
  {
    const std::lock_guard lock{mutex_};
    is_closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void IoThread::run(std::function<void()> work) {
  start(std::move(work)).get();
}

std::future<void> IoThread::start(std::function<void()> work) {
  std::packaged_task<void()> task{std::move(work)};
  auto future = task.get_future();
  {
    const std::lock_guard lock{mutex_};
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
  return future;
}

void IoThread::serve() {
  pthread_setname_np(pthread_self(), "checkpoints");
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), lower_priority);
  std::unique_lock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace penstock
