// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(AnOutcome, OfAnErrorIsWhatItSays) {
  const Outcome outcome = outcome_of(Error{ExitCode::bad_input, "no such deck"});

  EXPECT_EQ(outcome.code, ExitCode::bad_input);
  EXPECT_EQ(outcome.message, "no such deck");
}

TEST(AnOutcome, OfExhaustedMemoryIsWhatDoesNotFit) {
  const Outcome outcome = outcome_of(std::bad_alloc{});

  EXPECT_EQ(outcome.code, ExitCode::does_not_fit);
  EXPECT_THAT(outcome.message, AllOf(HasSubstr("host memory is used up"), Not(HasSubstr("bad_alloc"))));
}

TEST(AnOutcome, OfAnythingElseIsAFaultOfTheProgram) {
  EXPECT_EQ(outcome_of(std::logic_error{"odd"}).code, ExitCode::internal);
}

TEST(Agreement, EndsAllRanksAlikeWhereMemoryIsUsedUpOnOne) {
  const auto world = Communicator::world();
  const auto work = [&] {
    if (world.rank() == world.size() - 1) throw std::bad_alloc{};
  };

  try {
    jointly(world, work);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
  }
}

}  // namespace
}  // namespace penstock
