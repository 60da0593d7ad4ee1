// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// A failure that all ranks know of: they end together, in order, and the first rank alone prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// What one rank says of its part of a joint undertaking: nothing, or its failure.
struct Outcome {
  ExitCode code = ExitCode::finished;
  std::string message;
};

/// What a failure is told as: an Error as it is, exhausted memory as what does not fit, all else as a fault of the
/// program.
Outcome outcome_of(const std::exception& error);

/// Throws if any of the outcomes, one of each rank and known to all, is a failure: the first in rank order, with the
/// rank unless all say the same.
void refuse_failures(const std::vector<Outcome>& outcomes);

/// Throws the same AgreedError on all ranks if any of them failed: the first failure in rank order, with the rank
/// unless all say the same. Collective.
void agree(const Communicator& group, const Outcome& own);

/// Runs `work` on every rank; if it throws on any of them, all throw an AgreedError. `work` waits for another rank only
/// in calls that all ranks make, and that fail on all of them alike. Collective.
template <class Work>
auto jointly(const Communicator& group, Work&& work) {
  using Result = std::invoke_result_t<Work>;
  Outcome outcome;
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  try {
    if constexpr (std::is_void_v<Result>) {
      work();
    } else {
      result.emplace(work());
    }
  } catch (const std::exception& error) {
    outcome = outcome_of(error);
  }
  agree(group, outcome);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

}  // namespace penstock
