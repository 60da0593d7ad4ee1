// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "support/watchdog.hpp"

namespace penstock::test {

/// Keeps the ranks of an MPI test together: all begin a test at the same time, and at its end the first rank prints the
/// failures of the others as `[ RANK 2 ]` blocks and fails the test if any rank did.
///
/// A rank that leaves a test early lets the others wait for its messages. When a test exceeds the time limit, each rank
/// therefore says where it is and what failed on it, and the job ends.
class RankListener final : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(std::chrono::duration<double> time_limit);
  /// Whether any test failed on any rank, known to all ranks.
  bool has_failed() const { return has_failed_; }

 private:
  void OnTestStart(const testing::TestInfo& info) override;
  void OnTestPartResult(const testing::TestPartResult& result) override;
  void OnTestEnd(const testing::TestInfo& info) override;
  [[noreturn]] void time_out();

  Communicator group_;
  bool has_failed_ = false;
  std::mutex mutex_;
  std::string test_;        // under mutex_: the name of the running test
  std::string failures_;    // under mutex_: of this rank in this test
  bool is_at_end_ = false;  // under mutex_: this rank has left the test's body
  std::chrono::duration<double> time_limit_;
  Watchdog watchdog_;
};

}  // namespace penstock::test
