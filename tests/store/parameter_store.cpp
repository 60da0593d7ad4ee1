// SPDX-License-Identifier: Apache-2.0
// Runs on 1 to 4 ranks, all on this machine, which passes for up to 4 nodes. Gets between them need an MPI that gives
// windows of memory: where it does not, their tests are skipped.
#include "store/parameter_store.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "comm/agreement.hpp"
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

class WithRanks : public testing::Test {
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

/// Over all kinds of nodes and both ways to read from another one.
class ParameterStoreTest : public WithRanks, public testing::WithParamInterface<StoreOptions> {
 protected:
  /// Null where MPI has no windows of memory.
  std::unique_ptr<ParameterStore> make_store(const SharedStages& stages) const {
    try {
      return std::make_unique<ParameterStore>(world_, stages, GetParam());
    } catch (const AgreedError& error) {
      if (GetParam().fetch == Fetch::get && error.code() == ExitCode::bad_input) return nullptr;
      throw;
    }
  }
  bool is_on_own_node(Rank owner) const {
    const int ranks = GetParam().ranks_per_node.value_or(size_);
    return owner.value() / ranks == rank_ / ranks;
  }
  void read_random_parts(const ParameterStore& store, const SharedStages& stages, std::int64_t version,
                         std::uint64_t stream, std::atomic<int>& wrong) const;
};

constexpr std::string_view no_windows = "this MPI has no windows of memory here";

TEST_P(ParameterStoreTest, ShowsTheCopiesOfAllRanks) {
  auto stages = two_stages_each();
  stages.bytes[Stage{0}] = largest_piece_read * 2 + Bytes{12'345};
  const auto store = make_store(stages);
  if (!store) GTEST_SKIP() << no_windows;

  publish_own(*store, stages, 0);

  for (const Stage stage : all<Stage>(stages.owner.size())) {
    store->wait_for(stage, 0);
    const auto bytes = static_cast<std::size_t>(stages.bytes[stage].value);
    if (const std::byte* copy = store->direct(stage)) {
      EXPECT_EQ(first_difference({copy, bytes}, stage, 0, 0), -1);
    }
    EXPECT_EQ(store->direct(stage) != nullptr, is_on_own_node(stages.owner[stage]));
    std::vector<std::byte> whole(bytes);
    store->read(stage, Bytes{0}, whole);
    EXPECT_EQ(first_difference(whole, stage, 0, 0), -1);
    std::vector<std::byte> part(bytes - 100);
    store->read(stage, Bytes{100}, part);
    EXPECT_EQ(first_difference(part, stage, 0, 100), -1);
  }
}

TEST_P(ParameterStoreTest, LetsReadersWaitForALateVersion) {
  const auto stages = two_stages_each();
  const auto store = make_store(stages);
  if (!store) GTEST_SKIP() << no_windows;
  publish_own(*store, stages, 0);
  const Stage of_last_rank{0};
  std::vector<std::byte> before(5'000);
  std::vector<std::byte> after(5'000);
  store->wait_for(of_last_rank, 0);
  store->read(of_last_rank, Bytes{1}, before);
  world_.barrier();

  if (rank_ == size_ - 1) {
    std::this_thread::sleep_for(30ms);
    publish_own(*store, stages, 1);
  }
  store->wait_for(of_last_rank, 1);
  store->read(of_last_rank, Bytes{1}, after);

  EXPECT_EQ(first_difference(before, of_last_rank, 0, 1), -1);
  EXPECT_EQ(first_difference(after, of_last_rank, 1, 1), -1);
}

TEST_P(ParameterStoreTest, AnswersOneReaderWhileAnotherWaits) {
  const auto stages = two_stages_each();
  const auto store = make_store(stages);
  if (!store) GTEST_SKIP() << no_windows;
  const Stage late{0};
  const Stage early{size_};  // of the same owner
  std::thread waiting{[&] { store->wait_for(late, 0); }};

  if (rank_ == size_ - 1) {
    fill(store->own(early), early, 0);
    store->publish(early, 0);
  }
  store->wait_for(early, 0);
  std::vector<std::byte> part(5'000);
  store->read(early, Bytes{0}, part);
  world_.barrier();  // all have read, and the late stage is not published yet
  if (rank_ == size_ - 1) store->publish(late, 0);
  waiting.join();

  EXPECT_EQ(first_difference(part, early, 0, 0), -1);
}

void ParameterStoreTest::read_random_parts(const ParameterStore& store, const SharedStages& stages,
                                           std::int64_t version, std::uint64_t stream, std::atomic<int>& wrong) const {
  constexpr std::uint64_t reads = 6;
  const CounterRandom random{7, RandomPurpose::tests, stream};
  for (std::uint64_t i = 0; i < reads; ++i) {
    const auto words = random.words(i);
    const Stage stage{static_cast<std::int32_t>(words[0] % static_cast<std::uint32_t>(stages.owner.size()))};
    const auto bytes = static_cast<std::uint32_t>(stages.bytes[stage].value);
    const auto offset = static_cast<std::int64_t>(words[1] % bytes);
    std::vector<std::byte> part(words[2] % (bytes - words[1] % bytes + 1));
    store.wait_for(stage, version);
    store.read(stage, Bytes{offset}, part);
    wrong += first_difference(part, stage, version, offset) != -1;
  }
}

TEST_P(ParameterStoreTest, ServesReadersWhileTheMainThreadsExchangeMessages) {
  constexpr int versions = 8;
  const auto stages = two_stages_each();
  const auto store = make_store(stages);
  if (!store) GTEST_SKIP() << no_windows;
  std::atomic<int> wrong{0};
  std::int64_t sum = 0;

  for (std::int64_t version = 0; version < versions; ++version) {
    std::vector<std::thread> readers;
    for (std::uint64_t reader = 0; reader < 2; ++reader) {
      const auto stream =
          (static_cast<std::uint64_t>(rank_) * versions + static_cast<std::uint64_t>(version)) * 2 + reader;
      readers.emplace_back([&, stream] { read_random_parts(*store, stages, version, stream, wrong); });
    }
    publish_own(*store, stages, version);
    for (int i = 0; i < 20; ++i) sum += world_.sum(1);
    for (auto& reader : readers) reader.join();
    world_.barrier();  // nobody reads this version any more
  }

  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(sum, 20 * versions * size_);
}

TEST_P(ParameterStoreTest, EndsWhenAllHaveRead) {
  const auto stages = two_stages_each();
  auto store = make_store(stages);
  if (!store) GTEST_SKIP() << no_windows;
  publish_own(*store, stages, 0);
  const Stage of_first_rank{size_ - 1};
  std::vector<std::byte> part(10'000);

  if (rank_ > 0) {
    std::this_thread::sleep_for(20ms);  // the first rank is in its destructor
    store->wait_for(of_first_rank, 0);
    store->read(of_first_rank, Bytes{0}, part);
  }
  store.reset();

  if (rank_ > 0) {
    EXPECT_EQ(first_difference(part, of_first_rank, 0, 0), -1);
  }
}

TEST_P(ParameterStoreTest, WaitsForNobodyAfterAnException) {
  const auto stages = two_stages_each();
  const auto signal = std::as_bytes(std::span{"x", 1});
  std::byte received{};
  bool has_thrown = false;

  try {
    const auto store = make_store(stages);
    if (!store) GTEST_SKIP() << no_windows;
    // The others still have their stores when the first rank has lost its own.
    if (rank_ > 0) world_.receive({&received, 1}, 0, 1);
    throw std::runtime_error{"a fault of this rank"};
  } catch (const std::runtime_error&) {
    has_thrown = true;
  }
  if (rank_ == 0) {
    for (int other = 1; other < size_; ++other) world_.send(signal, other, 1);
  }

  EXPECT_TRUE(has_thrown);
}

TEST_P(ParameterStoreTest, LetsWaitingThreadsGoWhenItIsStopped) {
  const auto store = make_store(two_stages_each());
  if (!store) GTEST_SKIP() << no_windows;

  std::thread reader{[&] { EXPECT_THROW(store->wait_for(Stage{0}, 0), Error); }};
  std::this_thread::sleep_for(5ms);
  store->stop();
  reader.join();

  EXPECT_THROW(store->wait_for(Stage{size_ - 1}, 0), Error);
}

std::string name_of(const testing::TestParamInfo<StoreOptions>& info) {
  const auto& ranks = info.param.ranks_per_node;
  const std::string nodes = ranks ? fmt::format("NodesOf{}", *ranks) : "OneNode";
  return nodes + (info.param.fetch == Fetch::get ? "ByGet" : "ByMessage");
}
INSTANTIATE_TEST_SUITE_P(Nodes, ParameterStoreTest,
                         testing::Values(StoreOptions{}, StoreOptions{Fetch::message, 1},
                                         StoreOptions{Fetch::message, 2}, StoreOptions{Fetch::get, 1},
                                         StoreOptions{Fetch::get, 2}),
                         name_of);

class OneStoreTest : public WithRanks {};

TEST_F(OneStoreTest, LetsOnlyTheOwnerWrite) {
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

TEST_F(OneStoreTest, RefusesReadsBeyondACopy) {
  const auto stages = two_stages_each();
  const ParameterStore store{world_, stages, {}};
  std::vector<std::byte> part(101);

  EXPECT_THROW(store.read(Stage{0}, stages.bytes[Stage{0}] - Bytes{100}, part), Error);
  EXPECT_THROW(store.read(Stage{0}, Bytes{-1}, part), Error);
}

TEST_F(OneStoreTest, CountsItsHostMemory) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto stages = two_stages_each();
  const Stage first{size_ - 1};
  const Stage second{2 * size_ - 1};

  const auto planned = ParameterStore::host_bytes(stages, Rank{0});

  EXPECT_EQ(planned.value,
            page + round_up(stages.bytes[first].value, page) + round_up(stages.bytes[second].value, page));
}

TEST_F(OneStoreTest, SaysThatGetsAreNotPossible) {
  std::string message;
  ExitCode code = ExitCode::finished;

  try {
    const ParameterStore store{world_, two_stages_each(), {Fetch::get, 1}};
  } catch (const AgreedError& error) {
    message = error.what();
    code = error.code();
  }

  if (code == ExitCode::finished) GTEST_SKIP() << "this MPI has windows of memory here, or there is one rank";
  EXPECT_EQ(code, ExitCode::bad_input);
  EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("memory.fetch: get: this MPI"),
                                      testing::HasSubstr("; use memory.fetch: message")));
}

}  // namespace
}  // namespace penstock
