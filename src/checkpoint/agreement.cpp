// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agreement.hpp"

#include <string>

#include "base/error.hpp"

namespace penstock {
namespace {

/// The exit code as one character, then the message; empty without an exception.
std::string encoded(const std::exception_ptr& exception) {
  if (!exception) return {};
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return static_cast<char>(error.code()) + std::string{error.what()};
  } catch (const std::exception& error) {
    return static_cast<char>(ExitCode::internal) + std::string{error.what()};
  }
}

}  // namespace

void agree(const Communicator& group, const std::exception_ptr& mine) {
  const auto outcomes = group.all_gather(encoded(mine));
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].empty()) continue;
    const auto code = static_cast<ExitCode>(outcomes[rank].front());
    const std::string who = group.size() > 1 ? fmt::format("rank {}: ", rank) : std::string{};
    throw Error{code, who + outcomes[rank].substr(1)};
  }
}

void do_and_agree(const Communicator& group, const std::function<void()>& work) {
  std::exception_ptr outcome;
  try {
    work();
  } catch (...) {
    outcome = std::current_exception();
  }
  agree(group, outcome);
}

}  // namespace penstock
