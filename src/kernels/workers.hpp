// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace penstock {

/// The threads of one lane of a rank: a oneTBB arena (oneTBB is the only thread pool), or std::thread in a build with
/// PENSTOCK_STANDARD_THREADS (ThreadSanitizer cannot see into Debian's oneTBB). In both, each thread runs with one
/// OpenMP thread, as oneDNN's bits need (design, section 1).
class Workers {
 public:
  /// @pre threads >= 1, the calling thread included.
  explicit Workers(std::int32_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::int32_t threads() const;
  /// Calls body(0) .. body(count-1), each once, on any of the threads, and returns when all are done. Results must not
  /// depend on who runs what. Rethrows one of the exceptions thrown; bodies not yet started are then left out. Not
  /// reentrant.
  void for_each(std::int64_t count, const std::function<void(std::int64_t)>& body);
  /// The number of the calling thread within this arena, in [0, threads()): selects per-thread scratch inside a body.
  static std::int32_t thread_index();

 private:
  struct Implementation;
  std::int32_t threads_;
  std::unique_ptr<Implementation> implementation_;  // none for one thread: everything runs in the caller
};

}  // namespace penstock
