// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2, 3 and 4 ranks; tests that need a peer are skipped on one.
#include "comm/communicator.hpp"

#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

class ACommunicator : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
  int next_ = (rank_ + 1) % size_;
  int previous_ = (rank_ + size_ - 1) % size_;
};

/// A text of another length on each rank: "", "b", "cc", "ddd".
std::string text_of(int rank, int factor = 1) {
  return std::string(static_cast<std::size_t>(rank * factor), static_cast<char>('a' + rank));
}

std::span<const std::byte> bytes_of(const std::vector<int>& values) {
  return std::as_bytes(std::span{values});
}
std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span{values});
}

std::vector<int> counting(int first, int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_F(ACommunicator, GathersTextsOfAnyLengthInRankOrder) {
  const auto texts = world_.all_gather(text_of(rank_));

  ASSERT_EQ(static_cast<int>(texts.size()), size_);
  for (int rank = 0; rank < size_; ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
}

TEST_F(ACommunicator, GathersTextsWithZerosAndNothingAtAll) {
  const std::string zeros("a\0b", 3);

  for (const auto& text : world_.all_gather(zeros)) EXPECT_EQ(text, zeros);
  for (const auto& text : world_.all_gather(std::string{})) EXPECT_EQ(text, "");
}

TEST_F(ACommunicator, GathersTextsThatExceedOnePiece) {
  const auto in_pieces = world_.in_pieces(Bytes{7});

  const auto texts = in_pieces.all_gather(text_of(rank_, 50));

  for (int rank = 0; rank < size_; ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank, 50));
}

TEST_F(ACommunicator, GathersNumbersBitForBit) {
  const double value = rank_ == 0 ? -0.0 : 1.0 / rank_;

  const auto values = world_.all_gather(value);
  const auto integers = world_.all_gather(std::numeric_limits<std::int64_t>::min() + rank_);

  EXPECT_TRUE(std::signbit(values[0]));
  for (int rank = 0; rank < size_; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    EXPECT_EQ(values[index], rank == 0 ? 0.0 : 1.0 / rank);
    EXPECT_EQ(integers[index], std::numeric_limits<std::int64_t>::min() + rank);
  }
}

TEST_F(ACommunicator, SumsAndFindsExtrema) {
  const std::int64_t large = std::int64_t{1} << 60;

  EXPECT_EQ(world_.sum(large + rank_), large * size_ + size_ * (size_ - 1) / 2);
  EXPECT_EQ(world_.maximum(std::int64_t{-5} - rank_), -5);
  EXPECT_EQ(world_.maximum(-5.0 - rank_), -5.0);
}

TEST_F(ACommunicator, FindsNoMaximumBesideNaN) {
  const double value = rank_ == size_ - 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0;

  EXPECT_TRUE(std::isnan(world_.maximum(value)));
}

TEST_F(ACommunicator, BroadcastsFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    std::vector<int> values = rank_ == root ? counting(root, 1000) : std::vector<int>(1000, -1);

    world_.broadcast(bytes_of(values), root);

    EXPECT_EQ(values, counting(root, 1000));
    EXPECT_EQ(world_.broadcast(rank_ == root ? text_of(root + 1) : "not the root's", root), text_of(root + 1));
  }
}

TEST_F(ACommunicator, BroadcastsInPieces) {
  const auto in_pieces = world_.in_pieces(Bytes{13});
  std::vector<int> values = rank_ == 0 ? counting(5, 100) : std::vector<int>(100);

  in_pieces.broadcast(bytes_of(values), 0);

  EXPECT_EQ(values, counting(5, 100));
}

TEST_F(ACommunicator, ExchangesAroundARing) {
  // Large enough that a send completes only when it is received.
  for (const int count : {1, 300'000}) {
    std::vector<int> in(static_cast<std::size_t>(count));

    world_.exchange(bytes_of(counting(rank_, count)), next_, bytes_of(in), previous_, 3);

    EXPECT_EQ(in, counting(previous_, count));
  }
}

TEST_F(ACommunicator, ExchangesInPieces) {
  const auto in_pieces = world_.in_pieces(Bytes{10});
  std::vector<int> in(100);

  in_pieces.exchange(bytes_of(counting(rank_, 100)), next_, bytes_of(in), previous_, 3);

  EXPECT_EQ(in, counting(previous_, 100));
}

TEST_F(ACommunicator, ExchangesInOneDirectionOnly) {
  const auto out = rank_ == 0 ? counting(9, 10) : std::vector<int>{};
  std::vector<int> in(rank_ == size_ - 1 ? 10 : 0);

  world_.exchange(bytes_of(out), size_ - 1, bytes_of(in), 0, 3);

  EXPECT_EQ(in, rank_ == size_ - 1 ? counting(9, 10) : std::vector<int>{});
}

TEST_F(ACommunicator, SendsAndReceivesByTag) {
  if (size_ == 1) GTEST_SKIP() << "needs a peer";
  if (rank_ == 0) {
    world_.send(bytes_of(counting(1, 10)), 1, 1);
    world_.send(bytes_of(counting(2, 10)), 1, 2);
    world_.send({}, 1, 3);
  } else if (rank_ == 1) {
    std::vector<int> first(10);
    std::vector<int> second(10);
    // Small messages are sent before they are received, so the order of the tags is free.
    world_.receive(bytes_of(second), 0, 2);
    world_.receive(bytes_of(first), 0, 1);
    world_.receive({}, 0, 3);
    EXPECT_EQ(first, counting(1, 10));
    EXPECT_EQ(second, counting(2, 10));
  }
}

TEST_F(ACommunicator, LetsASenderGoOnBeforeAPostedReceiveIsFinished) {
  if (size_ == 1) GTEST_SKIP() << "needs a peer";
  constexpr int large = 1 << 18;  // no message of this length is on its way before it is received
  if (rank_ == 0) {
    world_.send(bytes_of(counting(1, large)), 1, 1);
    world_.send(bytes_of(counting(2, 10)), 1, 2);
  } else if (rank_ == 1) {
    std::vector<int> first(large);
    std::vector<int> second(10);
    PendingReceive pending = world_.start_receive(bytes_of(first), 0, 1);
    world_.receive(bytes_of(second), 0, 2);
    pending.finish();
    EXPECT_EQ(first, counting(1, large));
    EXPECT_EQ(second, counting(2, 10));
  }
}

TEST_F(ACommunicator, TakesBackAReceiveThatIsNotFinished) {
  if (size_ == 1) GTEST_SKIP() << "needs a peer";
  if (rank_ == 1) {
    std::vector<int> dropped(10);
    const PendingReceive pending = world_.start_receive(bytes_of(dropped), 0, 1);
  }
  world_.barrier();
  if (rank_ == 0) world_.send(bytes_of(counting(1, 10)), 1, 1);
  if (rank_ != 1) return;
  std::vector<int> numbers(10);

  world_.receive(bytes_of(numbers), 0, 1);

  EXPECT_EQ(numbers, counting(1, 10));
}

TEST_F(ACommunicator, RefusesAMessageOfAnotherLength) {
  if (size_ == 1) GTEST_SKIP() << "needs a peer";
  if (rank_ == 0) {
    world_.send(bytes_of(counting(1, 10)), 1, 1);
    world_.send(bytes_of(counting(1, 10)), 1, 2);
  } else if (rank_ == 1) {
    std::vector<int> longer(11);
    std::vector<int> shorter(9);
    try {
      world_.receive(bytes_of(longer), 0, 1);
      ADD_FAILURE() << "a short message was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("rank 0"), HasSubstr("40 bytes"), HasSubstr("44")));
    }
    try {
      world_.receive(bytes_of(shorter), 0, 2);
      ADD_FAILURE() << "a long message was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("MPI_ERR_TRUNCATE"));
    }
  }
}

TEST_F(ACommunicator, RefusesRanksThatAreNotThere) {
  EXPECT_THROW(world_.send({}, size_, 0), Error);
  EXPECT_THROW(world_.receive({}, -1, 0), Error);
  EXPECT_THROW(world_.send({}, rank_, 0), Error);
  EXPECT_THROW(world_.broadcast(std::string{}, size_), Error);
}

TEST_F(ACommunicator, SplitsByColorInTheOrderOfKeys) {
  const auto half = world_.split(rank_ % 2, -rank_);

  const auto members = half.all_gather(static_cast<std::int64_t>(rank_));

  // Keys descend, so the members of a color come in descending order.
  std::vector<std::int64_t> expected;
  for (int rank = size_ - 1; rank >= 0; --rank) {
    if (rank % 2 == rank_ % 2) expected.push_back(rank);
  }
  EXPECT_EQ(members, expected);
}

TEST_F(ACommunicator, KeepsTheMessagesOfADuplicateApart) {
  if (size_ == 1) GTEST_SKIP() << "needs a peer";
  const auto other = world_.duplicate();
  if (rank_ == 0) {
    other.send(bytes_of(counting(2, 4)), 1, 0);
    world_.send(bytes_of(counting(1, 4)), 1, 0);
  } else if (rank_ == 1) {
    std::vector<int> values(4);
    world_.receive(bytes_of(values), 0, 0);
    EXPECT_EQ(values, counting(1, 4));
    other.receive(bytes_of(values), 0, 0);
    EXPECT_EQ(values, counting(2, 4));
  }
}

TEST_F(ACommunicator, MayBeUsedByOneThreadWhileAnotherUsesADuplicate) {
  const auto other = world_.duplicate();
  std::int64_t sum = 0;
  std::thread thread{[&] {
    for (int i = 0; i < 50; ++i) sum += other.sum(1);
  }};
  for (int i = 0; i < 50; ++i) EXPECT_EQ(world_.maximum(static_cast<std::int64_t>(rank_)), size_ - 1);
  thread.join();

  EXPECT_EQ(sum, 50 * size_);
}

TEST_F(ACommunicator, SleepsWhileItWaits) {
  if (size_ == 1) GTEST_SKIP() << "needs a peer";
  const std::clock_t cpu = std::clock();

  if (rank_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds{200});
  world_.barrier();

  EXPECT_LT(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, 0.08);  // spinning would use 0.2
}

TEST_F(ACommunicator, OfItselfIsAlone) {
  const auto self = Communicator::self();
  std::vector<int> in(3);

  self.barrier();
  self.exchange(bytes_of(counting(1, 3)), 0, bytes_of(in), 0, 0);

  EXPECT_EQ(self.size(), 1);
  EXPECT_EQ(self.rank(), 0);
  EXPECT_EQ(in, counting(1, 3));
  EXPECT_THAT(self.all_gather("x"), testing::ElementsAre("x"));
  EXPECT_EQ(self.duplicate().split(4, 0).sum(5), 5);
  EXPECT_NE(self.native(), nullptr);
}

}  // namespace
}  // namespace penstock
