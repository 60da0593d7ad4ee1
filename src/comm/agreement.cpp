// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <algorithm>
#include <vector>

namespace penstock {

void agree(const Communicator& group, const Outcome& own) {
  const auto packed = own.code == ExitCode::finished
                          ? std::string{}
                          : std::string(1, static_cast<char>(static_cast<int>(own.code))) + own.message;
  const auto all = group.all_gather(packed);
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  if (first == all.end()) return;
  const auto code = static_cast<ExitCode>(first->front());
  const bool same = std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == *first; });
  const auto message = first->substr(1);
  throw AgreedError{code, same ? message : fmt::format("rank {}: {}", first - all.begin(), message)};
}

}  // namespace penstock
