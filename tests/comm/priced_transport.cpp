// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2, 3 and 4 ranks. Every rank sends to the next and receives from the one before; on one rank to itself.
#include "comm/priced_transport.hpp"

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "device/completion.hpp"
#include "device/priced/priced_device.hpp"
#include "device/priced/wait.hpp"

namespace penstock {
namespace {

using Kind = Transport::Kind;

constexpr Seconds price{4e-3};
constexpr Bytes large{std::int64_t{1} << 40};  // never sent: only the wire's time is waited

class PricedTransportTest : public testing::Test {
 protected:
  /// All messages cost `price`; those of `linked` take link 0.
  std::unique_ptr<Transport> transport(const std::vector<std::int32_t>& links = {}) {
    auto messages = make_mpi_transport(world_, {}, Bytes{1 << 20}, Looks::by_bells);
    return make_priced_transport(
        std::move(messages), rank_,
        [links](int, int) {
          return WirePrice{price, links};
        },
        *device_, &links_);
  }

  Communicator world_ = Communicator::world();
  int rank_ = world_.rank();
  int size_ = world_.size();
  int next_ = (rank_ + 1) % size_;
  int previous_ = (rank_ + size_ - 1) % size_;
  std::unique_ptr<Device> device_ = make_priced_device(Bytes{0}, {});
  SharedLinks links_{world_, 1};
};

/// The time from `begin` to when the event ended.
double seconds_to(const Event& event, Seconds begin) {
  event.wait();
  return (event.state()->finished() - begin).value;
}

TEST_F(PricedTransportTest, EndsAMessageAfterItsPriceAndLittleMore) {
  const auto wire = transport();
  double fastest = 1;
  for (int i = 0; i < 20; ++i) {
    world_.barrier();
    const Seconds begin = now();

    const Event received = wire->receive(previous_, Kind::activations, {}, nullptr, large);
    const Event sent = wire->send(next_, Kind::activations, {}, nullptr, large);

    EXPECT_GE(seconds_to(sent, begin), price.value);
    fastest = std::min(fastest, seconds_to(received, begin));
  }
  // The message before may have come early: of the same rank, so never before its own begin and price, less the skew of
  // the barrier.
  EXPECT_GT(fastest, price.value / 2);
  EXPECT_LT(fastest, price.value + 3e-3);
}

TEST_F(PricedTransportTest, StartsWhenTheInputsAreThere) {
  const auto wire = transport();
  Completion input;

  const Event sent = wire->send(next_, Kind::gradients, {input.event()}, nullptr, large);
  const Event received = wire->receive(previous_, Kind::gradients, {}, nullptr, large);
  world_.barrier();
  wait_until(now() + Seconds{10e-3});
  EXPECT_FALSE(sent.is_complete());
  EXPECT_FALSE(received.is_complete());
  world_.barrier();
  const Seconds given = now();
  input.succeed(given);

  EXPECT_GE(seconds_to(sent, given), price.value);
  received.wait();
  EXPECT_GE(received.state()->finished() - received.state()->started(), price);
}

TEST_F(PricedTransportTest, StartsWhenTheReceiverIsReady) {
  const auto wire = transport();
  Completion memory;

  const Event sent = wire->send(next_, Kind::activations, {}, nullptr, large);
  const Event received = wire->receive(previous_, Kind::activations, {memory.event()}, nullptr, large);
  wait_until(now() + Seconds{10e-3});
  EXPECT_FALSE(sent.is_complete());
  world_.barrier();
  const Seconds given = now();
  memory.succeed(given);

  EXPECT_GE(seconds_to(received, given), price.value);
  sent.wait();
}

TEST_F(PricedTransportTest, CarriesOneMessageOfAChannelAtATime) {
  const auto wire = transport();
  constexpr int count = 5;
  std::vector<Event> events;
  events.reserve(2 * count);
  const Seconds begin = now();

  for (int i = 0; i < count; ++i) events.push_back(wire->send(next_, Kind::activations, {}, nullptr, large));
  for (int i = 0; i < count; ++i) events.push_back(wire->receive(previous_, Kind::activations, {}, nullptr, large));
  for (const Event& event : events) event.wait();

  for (const int first : {0, count}) {
    for (int i = 0; i < count; ++i) {
      EXPECT_GE(seconds_to(events[static_cast<std::size_t>(first + i)], begin), (i + 1) * price.value);
    }
  }
}

/// How long it takes until all ranks have a message on each of two channels, all there at once.
double seconds_of_two(Transport& wire, const Communicator& world, int next, int previous) {
  double fastest = 1;
  for (int i = 0; i < 10; ++i) {
    const Seconds begin = now();
    world.barrier();
    std::vector<Event> events;
    for (const Kind kind : {Kind::activations, Kind::gradients}) {
      events.push_back(wire.receive(previous, kind, {}, nullptr, large));
      events.push_back(wire.send(next, kind, {}, nullptr, large));
    }
    double last = 0;
    for (const Event& event : events) last = std::max(last, seconds_to(event, begin));
    fastest = std::min(fastest, world.maximum(last));
  }
  return fastest;
}

TEST_F(PricedTransportTest, LetsMessagesOfASharedLinkWaitForEachOther) {
  const auto shared = transport({0});
  const double behind_each_other = seconds_of_two(*shared, world_, next_, previous_);
  const auto own = transport();
  const double beside_each_other = seconds_of_two(*own, world_, next_, previous_);

  EXPECT_GE(behind_each_other, 2 * size_ * price.value * (1 - 1e-6));
  EXPECT_LT(beside_each_other, 2 * price.value);
}

TEST_F(PricedTransportTest, TakesNoTimeForAWireThatCostsNone) {
  auto messages = make_mpi_transport(world_, {}, Bytes{1 << 20}, Looks::by_bells);
  const auto wire = make_priced_transport(
      std::move(messages), rank_, [](int, int) { return WirePrice{}; }, *device_, nullptr);
  Completion memory;

  const Event sent = wire->send(next_, Kind::checkpoints, {}, nullptr, large);
  const Event received = wire->receive(previous_, Kind::checkpoints, {memory.event()}, nullptr, large);
  wait_until(now() + Seconds{5e-3});
  EXPECT_FALSE(sent.is_complete());  // the receiver is not ready
  world_.barrier();
  memory.succeed(now());

  sent.wait();
  received.wait();
}

TEST_F(PricedTransportTest, CarriesAFailureOfTheInputs) {
  const auto wire = transport();
  Completion input;

  const Event sent = wire->send(rank_, Kind::activations, {input.event()}, nullptr, large);
  input.fail(std::make_exception_ptr(Error{ExitCode::internal, "the work failed"}));

  EXPECT_THROW(sent.wait(), Error);
}

TEST_F(PricedTransportTest, KeepsItsOwnKindsForItself) {
  const auto wire = transport();

  EXPECT_THROW(wire->send(next_, Kind::ready_for_gradients, {}, nullptr, large), Error);
  EXPECT_THROW(wire->receive(next_, Kind::ready_for_checkpoints, {}, nullptr, large), Error);
}

}  // namespace
}  // namespace penstock
