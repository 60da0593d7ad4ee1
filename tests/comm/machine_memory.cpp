// SPDX-License-Identifier: Apache-2.0
// Runs on 1 to 4 ranks, all on this machine.
#include "comm/machine_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "comm/doorbells.hpp"
#include "comm/shared_links.hpp"

namespace penstock {
namespace {

class MachineMemoryTest : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
};

TEST_F(MachineMemoryTest, IsOneBlockForAllRanks) {
  const auto memory = MachineMemory::of<std::atomic<std::int64_t>>(world_, 3);
  auto objects = memory.objects<std::atomic<std::int64_t>>();
  ASSERT_EQ(objects.size(), 3U);
  const std::int64_t at_first = objects[2].load();
  world_.barrier();

  objects[2] += rank_ + 1;
  world_.barrier();

  EXPECT_EQ(at_first, 0);
  EXPECT_EQ(objects[2].load(), size_ * (size_ + 1) / 2);
  EXPECT_EQ(memory.ranks().size(), size_);
}

TEST_F(MachineMemoryTest, MayHoldNothing) {
  const auto memory = MachineMemory::of<std::atomic<std::int64_t>>(world_, 0);

  EXPECT_TRUE(memory.objects<std::atomic<std::int64_t>>().empty());
}

TEST_F(MachineMemoryTest, LetsRanksWakeTheNext) {
  Doorbells bells{world_};
  EXPECT_TRUE(bells.reach_all());
  const int next = (rank_ + 1) % size_;
  constexpr int laps = 200;

  for (int lap = 0; lap < laps; ++lap) {
    if (rank_ == 0) bells.ring(next);
    // Without a bell this would sleep for ever, and the test with it.
    wait_for(bells.own());
    if (rank_ != 0) bells.ring(next);
  }
  world_.barrier();

  EXPECT_FALSE(wait_for(bells.own(), Seconds{1e-3}));
}

TEST_F(MachineMemoryTest, GivesASharedLinkToOneAtATime) {
  constexpr Seconds taken{3e-3};
  constexpr int times = 5;
  SharedLinks links{world_, 2};
  std::vector<double> starts;
  world_.barrier();

  for (int i = 0; i < times; ++i) {
    const Seconds asked = now();
    const Seconds start = links.take(1, taken);
    EXPECT_GE(start, asked);
    starts.push_back(start.value);
  }
  const Seconds other = links.take(0, taken);

  std::vector<double> all;
  for (const double start : starts) {
    for (const double of_rank : world_.all_gather(start)) all.push_back(of_rank);
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i] - all[i - 1], taken.value * (1 - 1e-6));
  // Nobody waits for a link that others do not use: all of it was asked for at once.
  EXPECT_LT(other.value, all.back());
}

TEST_F(MachineMemoryTest, RefusesLinksThatAreNotThere) {
  SharedLinks links{world_, 2};

  EXPECT_THROW(links.take(2, Seconds{1}), Error);
  EXPECT_THROW(links.take(-1, Seconds{1}), Error);
}

}  // namespace
}  // namespace penstock
