// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "checkpoint/example.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "comm/communicator.hpp"

namespace penstock {
namespace {

using namespace test;

class Background : public ::testing::Test {
 protected:
  Pieces<const float> dealt(const CheckpointContents& contents) const {
    return deal(contents, Deal::single_chunks, group_.rank(), group_.size());
  }
  std::int64_t wrong_in(const std::string& name, const CheckpointContents& contents) {
    auto loaded = room_for_everything(contents.datasets);
    io_.run([&] { load_checkpoint(folder_ / name, contents.datasets, loaded.pieces); });
    return wrong_elements(loaded, contents.header.step);
  }
  const Communicator group_ = Communicator::world().duplicate();
  const SharedFolder folder_{group_};
  IoThread io_;
};

TEST_F(Background, WritesWhatTheStateWasAtTheStart) {
  CheckpointWriter writer{io_, group_, {folder_.path(), 2}};
  const auto contents = example_contents(7);
  auto state = dealt(contents);

  writer.start(contents, state.pieces);
  for (std::size_t i = 0; i < state.pieces.size(); ++i)
    std::fill_n(state.memory[i].get(), state.pieces[i].count, -1.0F);  // training goes on
  const auto report = writer.wait();

  ASSERT_TRUE(report.has_value());
  EXPECT_GT(report->seconds.value, 0.0);
  EXPECT_EQ(wrong_in(checkpoint_name(7), contents), 0);
  EXPECT_EQ(writer.wait(), std::nullopt) << "reported twice";
}

TEST_F(Background, IsSpreadOverTheTimeThatItMayTake) {
  CheckpointWriter writer{io_, group_, {folder_.path(), 2}};
  const auto contents = example_contents(7);
  const auto state = dealt(contents);
  const Seconds begin = now();

  writer.start(contents, state.pieces, for_each_in_order, Seconds{3600});
  while (writer.is_writing()) std::this_thread::sleep_for(std::chrono::milliseconds{1});

  // At the slowest pace, the last part included.
  const double bytes = static_cast<double>(Snapshot::bytes_of(state.pieces).value);
  EXPECT_GE((now() - begin).value, bytes / static_cast<double>(Pace::slowest_bytes_per_second));
  EXPECT_TRUE(writer.wait().has_value());
  EXPECT_EQ(wrong_in(checkpoint_name(7), contents), 0);
}

TEST_F(Background, SecondStartWaitsForTheFirst) {
  CheckpointWriter writer{io_, group_, {folder_.path(), 5}};
  for (const std::int64_t step : {1, 2, 3}) {
    const auto contents = example_contents(step);
    writer.start(contents, dealt(contents).pieces);
  }
  writer.wait();

  for (const std::int64_t step : {1, 2, 3}) EXPECT_EQ(wrong_in(checkpoint_name(step), example_contents(step)), 0);
}

TEST_F(Background, KeepsTheNewestOnly) {
  CheckpointWriter writer{io_, group_, {folder_.path(), 2}};
  for (const std::int64_t step : {8, 9, 10, 11}) {
    const auto contents = small_contents(step);
    writer.start(contents, dealt(contents).pieces);
  }
  writer.wait();
  group_.barrier();

  const auto files = list_checkpoints(folder_.path());

  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].step, 11);
  EXPECT_EQ(files[1].step, 10);
}

TEST_F(Background, ReturnsWhileTheWriteIsInFlight) {
  CheckpointWriter writer{io_, group_, {folder_.path(), 2}};
  std::atomic<bool> may_go_on = false;
  io_.start([&] {
    while (!may_go_on) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  });
  const auto contents = small_contents(1);

  writer.start(contents, dealt(contents).pieces);
  const bool was_writing = writer.is_writing();
  may_go_on = true;
  writer.wait();

  EXPECT_TRUE(was_writing);
  EXPECT_FALSE(writer.is_writing());
}

TEST_F(Background, ThrowsTheErrorOfTheWriteOnAllRanks) {
  CheckpointWriter writer{io_, group_, {folder_.path(), 2}};
  const auto contents = small_contents(1);
  auto state = dealt(contents);
  const bool is_second = group_.rank() == std::min(1, group_.size() - 1);
  if (is_second) state.memory.back()[3] = std::numeric_limits<float>::infinity();

  writer.start(contents, state.pieces);

  EXPECT_THROW(writer.wait(), Error);
  EXPECT_EQ(writer.wait(), std::nullopt) << "an error is thrown once";
}

TEST_F(Background, CopiesOnceIntoMemoryThatIsKept) {
  const auto contents = example_contents(1);
  const auto state = dealt(contents);
  Snapshot snapshot;

  snapshot.take(state.pieces, for_each_in_order);
  const float* first = snapshot.pieces().empty() ? nullptr : snapshot.pieces()[0].data;
  snapshot.take(state.pieces, for_each_in_order);

  EXPECT_EQ(snapshot.bytes(), Snapshot::bytes_of(state.pieces));
  EXPECT_TRUE(first == nullptr || snapshot.pieces()[0].data == first);
}

TEST(TheIoThread, RunsWorkInOrderOnOneThreadAndHandsBackExceptions) {
  IoThread io;
  std::vector<std::thread::id> threads;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    io.start([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }

  EXPECT_THROW(io.run([] { throw std::runtime_error{"from the thread"}; }), std::runtime_error);
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(threads, ::testing::Each(threads.front()));
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

}  // namespace
}  // namespace penstock
