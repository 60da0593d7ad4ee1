// SPDX-License-Identifier: Apache-2.0
// The main of tests that run on several ranks: mpirun -n 3 test_x [GoogleTest's options] [--time-limit SECONDS]
// [--hang-rank N]. The time limit is that of one test (60, or what PENSTOCK_TEST_TIME_LIMIT in the environment says).
// The last option lets rank N wait, before the first test, until a debugger has set `debugger_is_here`.
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"
#include "support/rank_listener.hpp"

namespace penstock::test {
namespace {

volatile bool debugger_is_here = false;

void wait_for_debugger(int rank) {
  fmt::print(stderr,
             "rank {} waits for a debugger: gdb -p {}, then: up to this frame, set var debugger_is_here = true\n", rank,
             getpid());
  while (!debugger_is_here) std::this_thread::sleep_for(std::chrono::milliseconds{100});
}

int number_of(const char* text, std::string_view name) {
  int value = 0;
  if (std::from_chars(text, text + std::strlen(text), value).ec == std::errc{}) return value;
  fail(ExitCode::bad_input, "{} takes a number, not '{}'", name, text);
}

/// The number after `name`, of a command line that GoogleTest has taken its own options from.
std::optional<int> option(int argc, char** argv, std::string_view name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (name == argv[i]) return number_of(argv[i + 1], name);
  }
  return std::nullopt;
}

std::chrono::seconds time_limit(int argc, char** argv) {
  constexpr const char* variable = "PENSTOCK_TEST_TIME_LIMIT";
  if (const auto limit = option(argc, argv, "--time-limit")) return std::chrono::seconds{*limit};
  if (option(argc, argv, "--hang-rank")) return std::chrono::hours{24};
  const char* text = std::getenv(variable);
  return std::chrono::seconds{text == nullptr ? 60 : number_of(text, variable)};
}

/// One printer and one result file for all ranks; and one order, where GoogleTest is asked to shuffle.
void share_output(int rank) {
  const auto seed = Communicator::world().broadcast(std::to_string(getpid() % 99999), 0);
  if (GTEST_FLAG_GET(random_seed) == 0) GTEST_FLAG_SET(random_seed, std::stoi(seed) + 1);
  if (rank == 0) return;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  delete listeners.Release(listeners.default_xml_generator());
}

int run_tests(int argc, char** argv, int rank) {
  const auto hanging = option(argc, argv, "--hang-rank");
  share_output(rank);
  if (hanging == rank) wait_for_debugger(rank);
  auto listener = std::make_unique<RankListener>(time_limit(argc, argv));
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  listeners.Append(listener.get());
  const int mine = RUN_ALL_TESTS();
  const bool has_failed = listener->has_failed();
  listeners.Release(listener.get());
  return mine != 0 || has_failed ? 1 : 0;
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const penstock::MpiEnvironment environment{&argc, &argv};
  try {
    return penstock::test::run_tests(argc, argv, environment.rank());
  } catch (const std::exception& error) {
    penstock::log::error(error.what());
    penstock::MpiEnvironment::abort(penstock::ExitCode::internal);
  }
}
