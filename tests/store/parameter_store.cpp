// SPDX-License-Identifier: Apache-2.0
// Runs on 1 to 4 ranks, all on this machine.
#include "store/parameter_store.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// What a copy holds at `place`, of a stage in a version.
std::byte value_at(Stage stage, std::int64_t version, std::int64_t place) {
  return std::byte(place * 7 + place / 251 + version * 31 + stage.value() * 13 + 1);
}

void fill(std::span<std::byte> copy, Stage stage, std::int64_t version) {
  for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = value_at(stage, version, static_cast<std::int64_t>(i));
}

/// The first place from `offset` on where `data` is not that of the version; -1: it is everywhere.
std::int64_t first_difference(std::span<const std::byte> data, Stage stage, std::int64_t version, std::int64_t offset) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] != value_at(stage, version, offset + static_cast<std::int64_t>(i))) {
      return offset + static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

class ParameterStoreTest : public testing::Test {
 protected:
  /// Two stages for each rank, dealt backwards, of uneven sizes.
  SharedStages two_stages_each() const {
    SharedStages stages;
    for (const Stage stage : all<Stage>(2 * size_)) {
      stages.owner.push_back(Rank{size_ - 1 - stage.value() % size_});
      stages.bytes.push_back(Bytes{10'000 + 7'777 * stage.value()});
    }
    return stages;
  }
  void publish_own(ParameterStore& store, const SharedStages& stages, std::int64_t version) const {
    for (const Stage stage : all<Stage>(stages.owner.size())) {
      if (stages.owner[stage].value() != rank_) continue;
      fill(store.own(stage), stage, version);
      store.publish(stage, version);
    }
  }

  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
};

TEST_F(ParameterStoreTest, ShowsTheCopiesOfItsNode) {
  const auto stages = two_stages_each();
  ParameterStore store{world_, stages, {}};

  publish_own(store, stages, 0);

  for (const Stage stage : all<Stage>(stages.owner.size())) {
    store.wait_for(stage, 0);
    const auto bytes = static_cast<std::size_t>(stages.bytes[stage].value);
    ASSERT_NE(store.direct(stage), nullptr);
    EXPECT_EQ(first_difference({store.direct(stage), bytes}, stage, 0, 0), -1);
    std::vector<std::byte> part(bytes - 100);
    store.read(stage, Bytes{100}, part);
    EXPECT_EQ(first_difference(part, stage, 0, 100), -1);
  }
}

TEST_F(ParameterStoreTest, LetsReadersWaitForALateVersion) {
  const auto stages = two_stages_each();
  ParameterStore store{world_, stages, {}};
  publish_own(store, stages, 0);
  const Stage of_last_rank{0};
  store.wait_for(of_last_rank, 0);
  const auto before = first_difference({store.direct(of_last_rank), 10'000}, of_last_rank, 0, 0);
  world_.barrier();

  if (rank_ == size_ - 1) {
    std::this_thread::sleep_for(30ms);
    publish_own(store, stages, 1);
  }
  store.wait_for(of_last_rank, 1);

  EXPECT_EQ(before, -1);
  EXPECT_EQ(first_difference({store.direct(of_last_rank), 10'000}, of_last_rank, 1, 0), -1);
}

TEST_F(ParameterStoreTest, LetsOnlyTheOwnerWrite) {
  const auto stages = two_stages_each();
  ParameterStore store{world_, stages, {}};
  const Stage of_first_rank{size_ - 1};

  if (rank_ == 0) {
    EXPECT_EQ(store.own(of_first_rank).size(), static_cast<std::size_t>(stages.bytes[of_first_rank].value));
  } else {
    EXPECT_THROW(store.own(of_first_rank), Error);
    EXPECT_THROW(store.publish(of_first_rank, 0), Error);
  }
}

TEST_F(ParameterStoreTest, RefusesReadsBeyondACopy) {
  const auto stages = two_stages_each();
  const ParameterStore store{world_, stages, {}};
  std::vector<std::byte> part(101);

  EXPECT_THROW(store.read(Stage{0}, stages.bytes[Stage{0}] - Bytes{100}, part), Error);
  EXPECT_THROW(store.read(Stage{0}, Bytes{-1}, part), Error);
}

TEST_F(ParameterStoreTest, LetsWaitingThreadsGoWhenItIsStopped) {
  ParameterStore store{world_, two_stages_each(), {}};

  std::thread reader{[&] { EXPECT_THROW(store.wait_for(Stage{0}, 0), Error); }};
  store.stop();
  reader.join();
  world_.barrier();

  EXPECT_THROW(store.wait_for(Stage{0}, 0), Error);
}

TEST_F(ParameterStoreTest, CountsItsHostMemory) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto stages = two_stages_each();
  const Stage first{size_ - 1};
  const Stage second{2 * size_ - 1};

  const auto planned = ParameterStore::host_bytes(stages, Rank{0});

  EXPECT_EQ(planned.value,
            page + round_up(stages.bytes[first].value, page) + round_up(stages.bytes[second].value, page));
}

}  // namespace
}  // namespace penstock
