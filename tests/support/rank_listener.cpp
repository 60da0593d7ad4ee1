// SPDX-License-Identifier: Apache-2.0
#include "support/rank_listener.hpp"

#include <cstdio>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/environment.hpp"

namespace penstock::test {

RankListener::RankListener(std::chrono::duration<double> time_limit)
    : group_{Communicator::world().duplicate()}, time_limit_{time_limit}, watchdog_{time_limit, [this] {
                                                                                      time_out();
                                                                                    }} {}

void RankListener::OnTestStart(const testing::TestInfo& info) {
  {
    const std::lock_guard lock{mutex_};
    test_ = fmt::format("{}.{}", info.test_suite_name(), info.name());
    failures_.clear();
    is_at_end_ = false;
  }
  watchdog_.start();
  group_.barrier();
}

void RankListener::OnTestPartResult(const testing::TestPartResult& result) {
  if (!result.failed()) return;
  const std::lock_guard lock{mutex_};
  failures_ += fmt::format("{}:{}: {}\n", result.file_name() == nullptr ? "(no file)" : result.file_name(),
                           result.line_number(), result.message());
}

void RankListener::OnTestEnd(const testing::TestInfo& /*info*/) {
  std::string mine;
  {
    const std::lock_guard lock{mutex_};
    mine = failures_;
    is_at_end_ = true;
  }
  const std::vector<std::string> failures = group_.all_gather(mine);
  watchdog_.stop();
  bool has_other_failed = false;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto& text = failures[static_cast<std::size_t>(rank)];
    has_failed_ = has_failed_ || !text.empty();
    if (text.empty() || rank == 0) continue;
    has_other_failed = true;
    if (group_.rank() == 0) fmt::print("[ RANK {} ]\n{}", rank, text);
  }
  std::fflush(stdout);
  if (has_other_failed && group_.rank() == 0) ADD_FAILURE() << "failed on another rank, see the blocks above";
}

void RankListener::time_out() {
  {
    const std::lock_guard lock{mutex_};
    fmt::print(stderr, "[ RANK {} ] {} did not end within {} s; this rank {}{}\n", group_.rank(), test_,
               time_limit_.count(), is_at_end_ ? "has left the test and waits for the others" : "is still in the test",
               failures_.empty() ? "" : ", after these failures:\n" + failures_);
    std::fflush(stderr);
  }
  // The other ranks' watches end now too: they get a moment to say where they are.
  std::this_thread::sleep_for(std::chrono::seconds{1});
  MpiEnvironment::abort(ExitCode::no_progress);
}

}  // namespace penstock::test
