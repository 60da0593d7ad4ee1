// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/handle.hpp"

namespace penstock {

/// Whether the process is the first of those that mpirun or srun started, or was started by neither: before MPI is, by
/// their variables.
bool is_first_of_job();

/// Starts MPI with MPI_THREAD_MULTIPLE for the life of the object, names the process for the log, and makes MPI errors
/// Error exceptions. One per process, made in main. @throws Error if the MPI library gives less thread support.
///
/// The destructor waits (asleep) for all ranks. A fault that one rank sees alone must therefore end in abort(), called
/// while the environment lives, and not unwind past it.
class MpiEnvironment {
 public:
  MpiEnvironment(int* argc, char*** argv);
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ends all ranks of the job at once with `code`, for faults that one rank sees alone. Lines already written are
  /// flushed.
  [[noreturn]] static void abort(ExitCode code);

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace penstock
