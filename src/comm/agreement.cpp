// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <algorithm>
#include <new>
#include <vector>

namespace penstock {

Outcome outcome_of(const std::exception& error) {
  if (const auto* told = dynamic_cast<const Error*>(&error)) return {told->code(), told->what()};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return {
        ExitCode::does_not_fit,
        "host memory is used up: the system refused to give more. `penstock check` shows what a run plans, to which "
        "libraries and the program come; give each process more (ulimit -v, the limits of the batch system), or use "
        "more nodes"};
  }
  return {ExitCode::internal, error.what()};
}

void refuse_failures(const std::vector<Outcome>& outcomes) {
  const auto failed = [](const Outcome& outcome) { return outcome.code != ExitCode::finished; };
  const auto first = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (first == outcomes.end()) return;
  const bool same = std::all_of(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) {
    return outcome.code == first->code && outcome.message == first->message;
  });
  throw AgreedError{first->code,
                    same ? first->message : fmt::format("rank {}: {}", first - outcomes.begin(), first->message)};
}

void agree(const Communicator& group, const Outcome& own) {
  std::vector<Outcome> outcomes;
  const auto code = static_cast<char>(static_cast<int>(own.code));
  for (const std::string& text : group.all_gather(std::string(1, code) + own.message)) {
    outcomes.push_back({static_cast<ExitCode>(text.front()), text.substr(1)});
  }
  refuse_failures(outcomes);
}

}  // namespace penstock
