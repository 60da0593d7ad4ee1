// SPDX-License-Identifier: Apache-2.0
#include "kernels/workers.hpp"

#include <omp.h>

#include "base/error.hpp"

#ifdef PENSTOCK_STANDARD_THREADS
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>
#else
#include <mutex>
#include <optional>

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#endif

namespace penstock {
namespace {

thread_local std::int32_t current_index = 0;

/// oneDNN asks OpenMP how many threads it may use, both when a primitive is created and when it runs.
void become_thread(std::int32_t index) {
  omp_set_num_threads(1);
  current_index = index;
}

}  // namespace

#ifdef PENSTOCK_STANDARD_THREADS

/// Threads that sleep until a loop is posted, take indices from a common counter, and sleep again.
struct Workers::Implementation {
  explicit Implementation(std::int32_t threads) {
    for (std::int32_t index = 1; index < threads; ++index) {
      pool.emplace_back([this, index] { serve(index); });
    }
  }

  ~Implementation() {
    {
      const std::lock_guard lock{mutex};
      ends = true;
    }
    posted.notify_all();
    for (auto& thread : pool) thread.join();
  }

  void run(std::int64_t loop_count, const std::function<void(std::int64_t)>& loop_body) {
    {
      const std::lock_guard lock{mutex};
      body = &loop_body;
      count = loop_count;
      next = 0;
      failure = nullptr;
      busy = pool.size();
      ++loop;
    }
    posted.notify_all();
    become_thread(0);
    take_indices();
    std::unique_lock lock{mutex};
    finished.wait(lock, [this] { return busy == 0; });
    if (failure) std::rethrow_exception(failure);
  }

  void serve(std::int32_t index) {
    become_thread(index);
    std::int64_t seen = 0;
    std::unique_lock lock{mutex};
    while (true) {
      posted.wait(lock, [&] { return ends || loop != seen; });
      if (ends) return;
      seen = loop;
      lock.unlock();
      take_indices();
      lock.lock();
      if (--busy == 0) finished.notify_one();
    }
  }

  void take_indices() {
    try {
      for (std::int64_t index = next++; index < count; index = next++) (*body)(index);
    } catch (...) {
      next = count;
      const std::lock_guard lock{mutex};
      if (!failure) failure = std::current_exception();
    }
  }

  std::mutex mutex;
  std::condition_variable posted;
  std::condition_variable finished;
  bool ends = false;
  std::int64_t loop = 0;  ///< number of loops posted so far
  const std::function<void(std::int64_t)>* body = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  std::size_t busy = 0;  ///< pool threads still in this loop
  std::exception_ptr failure;
  std::vector<std::thread> pool;
};

#else

namespace {

/// oneTBB makes no more threads than the process may use cores, and says so on standard error; a rank that asks for
/// more (a test on a small machine) gets them.
void allow_threads(std::int32_t threads) {
  using tbb::global_control;
  static std::mutex mutex;
  static std::optional<global_control> allowed;
  const std::lock_guard lock{mutex};
  const auto wanted = static_cast<std::size_t>(threads);
  if (wanted <= global_control::active_value(global_control::max_allowed_parallelism)) return;
  allowed.reset();
  allowed.emplace(global_control::max_allowed_parallelism, wanted);
}

}  // namespace

struct Workers::Implementation {
  /// Prepares each thread as it joins the arena, the caller of execute() included.
  struct Observer : tbb::task_scheduler_observer {
    explicit Observer(tbb::task_arena& arena) : tbb::task_scheduler_observer{arena} { observe(true); }
    ~Observer() override { observe(false); }
    Observer(const Observer&) = delete;
    Observer& operator=(const Observer&) = delete;
    void on_scheduler_entry(bool /*is_worker*/) override {
      become_thread(tbb::this_task_arena::current_thread_index());
    }
  };

  explicit Implementation(std::int32_t threads) : arena{(allow_threads(threads), threads)}, observer{arena} {}

  void run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    arena.execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<std::int64_t>{0, count, 1},
          [&](const tbb::blocked_range<std::int64_t>& range) {
            for (std::int64_t index = range.begin(); index < range.end(); ++index) body(index);
          },
          tbb::simple_partitioner{});
    });
  }

  tbb::task_arena arena;
  Observer observer;
};

#endif

Workers::Workers(std::int32_t threads) : threads_{threads} {
  require(threads >= 1, "Workers: {} threads asked for, at least 1 is needed", threads);
  if (threads > 1) implementation_ = std::make_unique<Implementation>(threads);
}

Workers::~Workers() = default;

std::int32_t Workers::threads() const {
  return threads_;
}

void Workers::for_each(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (implementation_ && count > 1) {
    implementation_->run(count, body);
    return;
  }
  become_thread(0);
  for (std::int64_t index = 0; index < count; ++index) body(index);
}

std::int32_t Workers::thread_index() {
  return current_index;
}

}  // namespace penstock
