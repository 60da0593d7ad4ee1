// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2, 3 and 4 ranks. Every rank talks to every rank, itself included, so all tests run on one rank too.
#include "comm/transport.hpp"

#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "device/completion.hpp"
#include "device/host/host_device.hpp"
#include "support/test_data.hpp"

namespace penstock {
namespace {

using Kind = Transport::Kind;
using Block = std::vector<std::byte>;

constexpr Kind kinds[] = {Kind::activations, Kind::gradients};

/// What rank `from` sends to rank `to` as its message number `number` of a kind; of a length that depends on all of
/// these.
Block message_of(int from, int to, Kind kind, int number, std::int64_t longest = 5000) {
  const int stream_number = ((from * 8 + to) * 2 + static_cast<int>(kind)) * 1000 + number;
  const auto stream = static_cast<std::uint64_t>(stream_number);
  return test::random_bytes(static_cast<std::int64_t>(stream * 2654435761 % static_cast<std::uint64_t>(longest)),
                            stream);
}

Bytes size_of(const Block& block) {
  return {static_cast<std::int64_t>(block.size())};
}

class TransportTest : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
  int next_ = (rank_ + 1) % size_;
  int previous_ = (rank_ + size_ - 1) % size_;
};

/// The sends and receives of a test, with the memory that they need.
class Traffic {
 public:
  explicit Traffic(Transport& transport) : transport_{transport} {}

  void send(int from, int to, Kind kind, int number, std::vector<Event> after = {}) {
    out_.push_back(std::make_unique<Block>(message_of(from, to, kind, number)));
    events_.push_back(transport_.send(to, kind, std::move(after), out_.back()->data(), size_of(*out_.back())));
  }
  void receive(int from, int to, Kind kind, int number, std::vector<Event> after = {}) {
    Expected expected{message_of(from, to, kind, number), {}};
    expected.received.resize(expected.block.size());
    in_.push_back(std::make_unique<Expected>(std::move(expected)));
    Block& memory = in_.back()->received;
    events_.push_back(transport_.receive(from, kind, std::move(after), memory.data(), size_of(memory)));
  }
  void wait() {
    for (const auto& event : events_) event.wait();
  }
  void expect_all_arrived() {
    wait();
    for (const auto& one : in_) EXPECT_EQ(one->received, one->block);
  }

 private:
  struct Expected {
    Block block;
    Block received;
  };
  Transport& transport_;
  std::vector<std::unique_ptr<Block>> out_;
  std::vector<std::unique_ptr<Expected>> in_;
  std::vector<Event> events_;
};

/// Every rank sends `count` messages of both kinds to every rank and receives as many.
void exchange_all(Transport& transport, int rank, int size, int count) {
  Traffic traffic{transport};
  for (int number = 0; number < count; ++number) {
    for (int peer = 0; peer < size; ++peer) {
      for (const Kind kind : kinds) {
        traffic.send(rank, peer, kind, number);
        traffic.receive(peer, rank, kind, number);
      }
    }
  }
  traffic.expect_all_arrived();
}

TEST_F(TransportTest, CarriesManyChannelsAtOnceInOrder) {
  const auto transport = make_mpi_transport(world_, {});

  exchange_all(*transport, rank_, size_, 20);
}

TEST_F(TransportTest, KeepsTheOrderUnderRandomDelays) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto transport =
        make_mpi_transport(world_, {seed * 100 + static_cast<std::uint64_t>(rank_), Seconds{500e-6}});

    exchange_all(*transport, rank_, size_, 10);
  }
}

TEST_F(TransportTest, CutsMessagesInPieces) {
  const auto transport = make_mpi_transport(world_, {}, Bytes{100});

  exchange_all(*transport, rank_, size_, 5);
}

TEST_F(TransportTest, LetsLargeMessagesCross) {
  const auto transport = make_mpi_transport(world_, {});
  const auto out = test::random_bytes(2'000'000, static_cast<std::uint64_t>(rank_));
  Block in(out.size());

  // Both neighbours send before they receive: with blocking sends this would never end.
  const Event sent = transport->send(next_, Kind::activations, {}, out.data(), size_of(out));
  const Event received = transport->receive(previous_, Kind::activations, {}, in.data(), size_of(in));
  sent.wait();
  received.wait();

  EXPECT_EQ(in, test::random_bytes(2'000'000, static_cast<std::uint64_t>(previous_)));
}

TEST_F(TransportTest, CarriesMessagesOfNoBytes) {
  const auto transport = make_mpi_transport(world_, {});

  const Event sent = transport->send(next_, Kind::gradients, {}, nullptr, Bytes{0});
  const Event received = transport->receive(previous_, Kind::gradients, {}, nullptr, Bytes{0});

  sent.wait();
  received.wait();
}

TEST_F(TransportTest, SendsOnlyWhatIsReady) {
  const auto transport = make_mpi_transport(world_, {});
  int value = -1;
  int in = 0;
  Completion gate;

  const Event sent = transport->send(next_, Kind::activations, {gate.event()}, reinterpret_cast<std::byte*>(&value),
                                     Bytes{sizeof value});
  const Event received =
      transport->receive(previous_, Kind::activations, {}, reinterpret_cast<std::byte*>(&in), Bytes{sizeof in});
  std::this_thread::sleep_for(std::chrono::milliseconds{2});
  EXPECT_FALSE(sent.is_complete());
  value = rank_;
  const Seconds released = now();
  gate.succeed(released);
  sent.wait();
  received.wait();

  EXPECT_EQ(in, previous_);
  EXPECT_GE(sent.state()->started(), released);
  EXPECT_GE(sent.state()->finished(), sent.state()->started());
  EXPECT_GE(received.state()->finished(), received.state()->started());
}

TEST_F(TransportTest, HoldsBackLaterMessagesOfAChannelButNotOfOthers) {
  const auto transport = make_mpi_transport(world_, {});
  Traffic traffic{*transport};
  Traffic others{*transport};
  Completion gate;
  traffic.send(rank_, next_, Kind::activations, 0, {gate.event()});
  traffic.send(rank_, next_, Kind::activations, 1);
  traffic.receive(previous_, rank_, Kind::activations, 0);
  traffic.receive(previous_, rank_, Kind::activations, 1);

  others.send(rank_, next_, Kind::gradients, 0);
  others.receive(previous_, rank_, Kind::gradients, 0);
  others.expect_all_arrived();  // passes the held channel

  gate.succeed(now());
  traffic.expect_all_arrived();
}

TEST_F(TransportTest, ReceivesOnlyIntoMemoryThatIsFree) {
  const auto transport = make_mpi_transport(world_, {});
  const auto host = make_host_device(Bytes{0}, {});
  const auto queue = host->make_queue("compute");
  Block memory(1000, std::byte{1});
  const Block out(1000, std::byte{2});
  int sum_of_old = 0;

  const Event sent = transport->send(next_, Kind::activations, {}, out.data(), size_of(out));
  const Event used = queue->submit({}, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{3});
    for (const auto byte : memory) sum_of_old += std::to_integer<int>(byte);
  });
  const Event received = transport->receive(previous_, Kind::activations, {used}, memory.data(), size_of(memory));
  received.wait();
  sent.wait();

  EXPECT_EQ(sum_of_old, 1000);
  EXPECT_EQ(memory, out);
}

/// Passes a number around the ring of ranks, each adding one in a queue; the work, sends and receives are queued at
/// once.
int go_around(const Communicator& world, int laps, DelayOptions delays) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const auto transport = make_mpi_transport(world, delays);
  const auto host = make_host_device(Bytes{0}, delays);
  const auto queue = host->make_queue("compute");
  int value = 0;
  auto* memory = reinterpret_cast<std::byte*>(&value);
  const auto add = [&] { ++value; };
  Event last;
  for (int lap = 0; lap < laps; ++lap) {
    if (world.rank() > 0) last = transport->receive(previous, Kind::activations, {last}, memory, Bytes{sizeof value});
    last = queue->submit({last}, add);
    last = transport->send(next, Kind::activations, {last}, memory, Bytes{sizeof value});
    if (world.rank() == 0) last = transport->receive(previous, Kind::activations, {last}, memory, Bytes{sizeof value});
  }
  last.wait();
  return value;
}

TEST_F(TransportTest, ChainsWithQueuesAroundTheRing) {
  // On one rank a message to oneself is received after it is sent, both by events: the send must not wait for its
  // receive.
  const int laps = 10;

  const int value = go_around(world_, laps, {});
  const int delayed = go_around(world_, laps, {static_cast<std::uint64_t>(rank_), Seconds{300e-6}});

  EXPECT_EQ(value, rank_ == 0 ? laps * size_ : (laps - 1) * size_ + rank_ + 1);
  EXPECT_EQ(delayed, value);
}

TEST_F(TransportTest, FailsTheChannelOfAFailedInputAndNoOther) {
  const auto transport = make_mpi_transport(world_, {});
  const Block out(16);
  Traffic others{*transport};
  Completion gate;

  const Event broken = transport->send(next_, Kind::activations, {gate.event()}, out.data(), size_of(out));
  const Event later = transport->send(next_, Kind::activations, {}, out.data(), size_of(out));
  gate.fail(std::make_exception_ptr(std::runtime_error{"the kernel failed"}));
  EXPECT_THROW(broken.wait(), std::runtime_error);
  EXPECT_THROW(later.wait(), std::runtime_error);
  const Event much_later = transport->send(next_, Kind::activations, {}, out.data(), size_of(out));
  EXPECT_THROW(much_later.wait(), std::runtime_error);

  others.send(rank_, next_, Kind::gradients, 0);
  others.receive(previous_, rank_, Kind::gradients, 0);
  others.expect_all_arrived();
}

TEST_F(TransportTest, FailsAReceiveOfAnotherLengthAndItsChannel) {
  const auto transport = make_mpi_transport(world_, {});
  const Block out(16);
  Block in(20);

  const Event sent = transport->send(next_, Kind::activations, {}, out.data(), size_of(out));
  const Event received = transport->receive(previous_, Kind::activations, {}, in.data(), size_of(in));

  sent.wait();
  EXPECT_THROW(received.wait(), Error);
  EXPECT_THROW(transport->receive(previous_, Kind::activations, {}, in.data(), size_of(in)).wait(), Error);
}

TEST_F(TransportTest, FailsWhatIsNotCompleteWhenDestroyed) {
  auto transport = make_mpi_transport(world_, {});
  Completion never;
  Block memory(16);

  const Event unmet = transport->receive(previous_, Kind::activations, {}, memory.data(), size_of(memory));
  const Event unposted = transport->send(next_, Kind::activations, {never.event()}, memory.data(), size_of(memory));
  transport.reset();

  EXPECT_THROW(unmet.wait(), Error);
  EXPECT_THROW(unposted.wait(), Error);
  never.succeed(now());  // wakes a transport that is gone
}

TEST_F(TransportTest, GivesUpWhatNoPeerTakesWhenDestroyed) {
  auto transport = make_mpi_transport(world_, {});
  const Block large(1'000'000);  // too large to be sent before it is received
  const Event untaken = transport->send(next_, Kind::activations, {}, large.data(), size_of(large));
  const Seconds begin = now();

  transport.reset();

  EXPECT_THROW(untaken.wait(), Error);
  EXPECT_LT((now() - begin).value, 5.0);
}

TEST_F(TransportTest, RefusesRanksAndSizesThatCannotBe) {
  const auto transport = make_mpi_transport(world_, {});

  EXPECT_THROW(transport->send(size_, Kind::activations, {}, nullptr, Bytes{0}), Error);
  EXPECT_THROW(transport->receive(-1, Kind::activations, {}, nullptr, Bytes{0}), Error);
  EXPECT_THROW(transport->send(rank_, Kind::activations, {}, nullptr, Bytes{-1}), Error);
  EXPECT_THROW(make_mpi_transport(world_, {}, Bytes{0}), Error);
}

TEST_F(TransportTest, TakesMessagesFromManyThreads) {
  const auto transport = make_mpi_transport(world_, {});
  std::vector<std::thread> threads;
  for (const Kind kind : kinds) {
    threads.emplace_back([&, kind] {
      Traffic traffic{*transport};
      for (int number = 0; number < 30; ++number) {
        traffic.send(rank_, next_, kind, number);
        traffic.receive(previous_, rank_, kind, number);
      }
      traffic.expect_all_arrived();
    });
  }
  for (auto& thread : threads) thread.join();
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST_F(TransportTest, UsesNoTimeWhileNothingIsPending) {
  const auto transport = make_mpi_transport(world_, {});
  Completion gate;
  int value = 0;
  auto* memory = reinterpret_cast<std::byte*>(&value);
  const Event held = transport->send(rank_, Kind::activations, {gate.event()}, memory, Bytes{sizeof value});

  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  EXPECT_LT(cpu_seconds() - before, 0.005);

  int in = 0;
  gate.succeed(now());
  transport->receive(rank_, Kind::activations, {}, reinterpret_cast<std::byte*>(&in), Bytes{sizeof in}).wait();
  held.wait();
}

TEST_F(TransportTest, SleepsWhileAMessageIsPending) {
  const auto transport = make_mpi_transport(world_, {});
  int in = 0;
  const Event received =
      transport->receive(rank_, Kind::activations, {}, reinterpret_cast<std::byte*>(&in), Bytes{sizeof in});

  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  EXPECT_LT(cpu_seconds() - before, 0.06);  // spinning would use 0.2

  const int out = 5;
  const auto* memory = reinterpret_cast<const std::byte*>(&out);
  transport->send(rank_, Kind::activations, {}, memory, Bytes{sizeof out}).wait();
  received.wait();
  EXPECT_EQ(in, 5);
}

}  // namespace
}  // namespace penstock
