// SPDX-License-Identifier: Apache-2.0
// What the main of MPI tests does with a rank that fails or hangs: disabled tests, which CMakeLists.txt runs one by one
// and whose output it checks.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"

namespace penstock {
namespace {

TEST(MpiMain, RunsTheSameTestOnAllRanks) {
  const auto world = Communicator::world();

  EXPECT_EQ(world.sum(1), world.size());
}

TEST(MpiMain, DISABLED_FailsOnTheLastRank) {
  const auto world = Communicator::world();

  EXPECT_NE(world.rank(), world.size() - 1) << "the last rank says so";
}

TEST(MpiMain, DISABLED_LeavesTheTestOnTheLastRank) {
  const auto world = Communicator::world();
  ASSERT_NE(world.rank(), world.size() - 1) << "the others wait for this rank";
  world.barrier();
}

}  // namespace
}  // namespace penstock
