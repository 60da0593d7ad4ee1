// SPDX-License-Identifier: Apache-2.0
#include "app/stop_request.hpp"

#include <atomic>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>

namespace penstock {
namespace {

std::atomic<int> received_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch lock-free atomics");

extern "C" void remember_signal(int number) {
  if (number == SIGINT && received_signal.load() == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received_signal.store(number);
}

void install(int number) {
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

std::string signal_text(int number) {
  switch (number) {
    case SIGUSR1:
      return "signal USR1";
    case SIGTERM:
      return "signal TERM";
    case SIGINT:
      return "signal INT";
    default:
      return fmt::format("signal {}", number);
  }
}

}  // namespace

StopRequest::StopRequest(std::string directory, Seconds time_limit)
    : stop_file_{(std::filesystem::path{std::move(directory)} / "stop").string()},
      start_{now()},
      time_limit_{time_limit} {
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) install(number);
}

std::optional<std::string> StopRequest::reason(Seconds next_step) const {
  if (const int number = received_signal.load(); number != 0) return signal_text(number);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(stop_file_, ignored)) return "stop file " + stop_file_;
  if (time_limit_.value > 0 && now() - start_ + next_step > time_limit_) {
    return fmt::format("time limit of {} s", time_limit_.value);
  }
  return std::nullopt;
}

void StopRequest::remove_stop_file() const {
  std::error_code ignored;
  std::filesystem::remove(stop_file_, ignored);
}

}  // namespace penstock
