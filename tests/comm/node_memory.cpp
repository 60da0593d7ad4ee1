// SPDX-License-Identifier: Apache-2.0
// Runs on 1 to 4 ranks, all on this machine.
#include "comm/node_memory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/available_memory.hpp"
#include "comm/agreement.hpp"
#include "comm/version.hpp"

namespace penstock {
namespace {

class NodeMemoryTest : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
};

TEST_F(NodeMemoryTest, GivesEachRankTheBlocksOfAll) {
  const Nodes nodes{world_, std::nullopt};
  const auto bytes_of = [](int rank) { return 5000 * rank; };  // of rank 0: none
  const NodeMemory memory{nodes, Bytes{bytes_of(rank_)}, "a test"};
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const bool is_zero = std::all_of(memory.own().begin(), memory.own().end(), [](auto b) { return b == std::byte{0}; });

  std::fill(memory.own().begin(), memory.own().end(), std::byte(rank_ + 1));
  world_.barrier();

  EXPECT_TRUE(is_zero);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.own().data()) % page, 0U);
  for (int rank = 0; rank < size_; ++rank) {
    const auto block = memory.of(rank);
    ASSERT_EQ(block.size(), static_cast<std::size_t>(bytes_of(rank)));
    EXPECT_EQ(std::count(block.begin(), block.end(), std::byte(rank + 1)), bytes_of(rank));
  }
}

TEST_F(NodeMemoryTest, OutlivesItsOwnersStore) {
  const Nodes nodes{world_, std::nullopt};
  auto memory = std::make_unique<NodeMemory>(nodes, Bytes{100}, "a test");
  memory->own()[99] = std::byte{7};
  world_.barrier();

  if (rank_ != size_ - 1) memory.reset();
  world_.barrier();

  if (rank_ == size_ - 1) {
    EXPECT_EQ(memory->of(0)[99], std::byte{7});
  }
}

TEST_F(NodeMemoryTest, HasNoNameThatACrashCouldLeaveBehind) {
  const Nodes nodes{world_, std::nullopt};
  const NodeMemory memory{nodes, Bytes{4096}, "a test"};
  std::ifstream maps{"/proc/self/maps"};
  int found = 0;

  for (std::string line; std::getline(maps, line);) {
    if (line.find("penstock") == std::string::npos || line.find("memfd") == std::string::npos) continue;
    ++found;
    EXPECT_THAT(line, testing::EndsWith("/memfd:penstock (deleted)"));
  }

  EXPECT_EQ(found, size_);
}

TEST_F(NodeMemoryTest, RefusesMoreThanTheNodeHasOnAllRanks) {
  const Nodes nodes{world_, std::nullopt};
  const Bytes too_much = available_memory() + Bytes{std::int64_t{1} << 40};
  std::string message;
  ExitCode code = ExitCode::finished;

  try {
    const NodeMemory memory{nodes, rank_ == size_ - 1 ? too_much : Bytes{1}, "the copies of a test"};
  } catch (const AgreedError& error) {
    message = error.what();
    code = error.code();
  }

  EXPECT_EQ(code, ExitCode::does_not_fit);
  EXPECT_THAT(message, testing::HasSubstr("the copies of a test: "));
  EXPECT_THAT(message, testing::HasSubstr("are asked for on this machine"));
}

TEST_F(NodeMemoryTest, CountsRanksInGroupsAsNodes) {
  const Nodes machine{world_, std::nullopt};
  const Nodes single{world_, 1};
  const Nodes pairs{world_, 2};

  EXPECT_EQ(machine.count(), 1);
  EXPECT_EQ(single.count(), size_);
  EXPECT_EQ(pairs.count(), (size_ + 1) / 2);
  for (int rank = 0; rank < size_; ++rank) {
    EXPECT_EQ(machine.place(rank), rank);
    EXPECT_EQ(single.place(rank), rank == rank_ ? std::optional{0} : std::nullopt);
    EXPECT_EQ(pairs.place(rank), rank / 2 == rank_ / 2 ? std::optional{rank % 2} : std::nullopt);
  }
}

TEST_F(NodeMemoryTest, CountsRanksOfTheJobNotOfTheGroup) {
  // Ranks 0 and 2 of 3 or 4: in pairs they are on two nodes, although they are neighbours in their group.
  const auto group = world_.split(rank_ % 2, rank_);

  const Nodes nodes{group, 2};

  EXPECT_EQ(nodes.count(), group.size());
  EXPECT_EQ(nodes.own().size(), 1);
}

TEST_F(NodeMemoryTest, LetsReadersOfAVersionSleepUntilItIsThere) {
  using namespace std::chrono_literals;
  const Nodes nodes{world_, std::nullopt};
  const NodeMemory memory{nodes, Bytes{128}, "a test"};
  new (memory.own().data()) Version;
  world_.barrier();
  const auto* first = std::launder(reinterpret_cast<const Version*>(memory.of(0).data()));
  const std::int64_t at_first = first->get();
  world_.barrier();
  const std::atomic<bool> never{false};

  if (rank_ == 0) {
    std::this_thread::sleep_for(20ms);
    memory.own()[100] = std::byte{5};
    std::launder(reinterpret_cast<Version*>(memory.own().data()))->publish(3);
  }
  const bool has_come = first->wait_for(2, never);

  EXPECT_EQ(at_first, Version::none);
  EXPECT_TRUE(has_come);
  EXPECT_EQ(memory.of(0)[100], std::byte{5});
  EXPECT_EQ(first->get(), 3);
}

TEST(VersionTest, GrowsOnly) {
  Version version;
  version.publish(0);

  EXPECT_THROW(version.publish(0), Error);
  version.publish(2);

  EXPECT_EQ(version.get(), 2);
}

TEST(VersionTest, LetsThreadsGoThatAreStopped) {
  const Version version;
  std::atomic<bool> stop{false};
  bool has_come = true;

  std::thread reader{[&] { has_come = version.wait_for(0, stop); }};
  stop.store(true);
  reader.join();

  EXPECT_FALSE(has_come);
}

TEST(VersionTest, ShowsWhatWasWrittenBefore) {
  constexpr int versions = 2000;
  Version version;
  std::int64_t written = -1;  // not atomic: the version alone orders its write and its reads
  const std::atomic<bool> never{false};
  Version seen;

  std::thread writer{[&] {
    for (int number = 0; number < versions; ++number) {
      written = number;
      version.publish(number);
      seen.wait_for(number, never);
    }
  }};
  int wrong = 0;
  for (int number = 0; number < versions; ++number) {
    version.wait_for(number, never);
    wrong += written != number;
    seen.publish(number);
  }
  writer.join();

  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace penstock
