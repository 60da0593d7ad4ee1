// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/workers.hpp"

namespace penstock {
namespace {

class OnThreads : public testing::TestWithParam<std::int32_t> {};

TEST_P(OnThreads, EveryIndexIsVisitedOnce) {
  Workers workers{GetParam()};
  for (const std::int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));

    workers.for_each(count, [&](std::int64_t index) { ++visits[static_cast<std::size_t>(index)]; });

    for (const auto& visit : visits) EXPECT_EQ(visit, 1);
  }
}

TEST_P(OnThreads, ThreadIndicesStayBelowTheNumberOfThreads) {
  Workers workers{GetParam()};
  std::atomic<int> faults{0};

  workers.for_each(1000, [&](std::int64_t) {
    if (Workers::thread_index() < 0 || Workers::thread_index() >= workers.threads()) ++faults;
  });

  EXPECT_EQ(faults, 0);
}

TEST_P(OnThreads, NoTwoThreadsShareAnIndexAtOneTime) {
  Workers workers{GetParam()};
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(workers.threads()));
  std::atomic<int> faults{0};

  workers.for_each(1000, [&](std::int64_t) {
    auto& mine = inside[static_cast<std::size_t>(Workers::thread_index())];
    if (++mine != 1) ++faults;
    --mine;
  });

  EXPECT_EQ(faults, 0);
}

TEST_P(OnThreads, AnExceptionReachesTheCallerAndTheNextLoopRuns) {
  Workers workers{GetParam()};

  EXPECT_THROW(workers.for_each(100,
                                [](std::int64_t index) {
                                  if (index == 37) throw std::runtime_error{"thirty-seven"};
                                }),
               std::runtime_error);

  std::atomic<int> visits{0};
  workers.for_each(100, [&](std::int64_t) { ++visits; });
  EXPECT_EQ(visits, 100);
}

INSTANTIATE_TEST_SUITE_P(OneToThree, OnThreads, testing::Values(1, 2, 3));

TEST(Workers, RefuseToBeNone) {
  EXPECT_THROW(Workers{0}, Error);
}

}  // namespace
}  // namespace penstock
