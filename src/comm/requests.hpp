// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string_view>
#include <vector>

#include <mpi.h>

namespace penstock {

/// What MPI has been asked for and has not finished. For one thread.
class Requests {
 public:
  /// `doing` says in errors what is asked for; it outlives this.
  explicit Requests(std::string_view doing) : doing_{doing} {}
  /// What is left goes on in MPI or not; its memory must stay.
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  bool empty() const { return requests_.empty(); }
  /// The place for the handle of one more.
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Lets MPI progress; whether any has finished since the last call. @throws Error with MPI's text
  bool test();
  /// Until all have finished (true), asleep between tests, or until `stop` is set (false).
  bool wait(const std::atomic<bool>& stop);

 private:
  std::string_view doing_;
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;  // scratch of test()
};

}  // namespace penstock
