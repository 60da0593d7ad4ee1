// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <algorithm>
#include <vector>

namespace penstock {

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
