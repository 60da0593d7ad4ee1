// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2, 3 and 4 ranks.
#include "comm/meeting.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "base/units.hpp"
#include "device/priced/wait.hpp"

namespace penstock {
namespace {

class MeetingTest : public testing::Test {
 protected:
  /// All ranks but this one.
  std::vector<Rank> others() const {
    std::vector<Rank> result;
    for (const Rank rank : all<Rank>(size_)) {
      if (rank.value() != rank_) result.push_back(rank);
    }
    return result;
  }

  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
  Meeting meeting_{world_};
};

TEST_F(MeetingTest, HoldsAllUntilTheLastHasComeEachTime) {
  for (int round = 0; round < 20; ++round) {
    if (rank_ == round % size_) wait_until(now() + Seconds{3e-3});

    const double came = now().value;
    meeting_.wait_for(others());
    const double left = now().value;

    EXPECT_GE(left, world_.maximum(came)) << "round " << round;
  }
}

TEST_F(MeetingTest, OfSomeWaitsForNobodyElse) {
  const Rank first{0};
  const Rank last{size_ - 1};
  if (size_ < 3) GTEST_SKIP() << "needs a rank that does not come";

  if (rank_ == first.value()) meeting_.wait_for({last});
  if (rank_ == last.value()) meeting_.wait_for({first});
  world_.barrier();  // never reached if they waited for rank 1
  if (rank_ == 1) wait_until(now() + Seconds{5e-3});
  const double came = now().value;
  meeting_.wait_for(others());
  const double left = now().value;

  EXPECT_GE(left, world_.maximum(came)) << "the words of two were taken for those of all";
}

}  // namespace
}  // namespace penstock
