// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "execute/compute_work.hpp"
#include "execute/executor.hpp"
#include "execute/rank_state.hpp"
#include "execute/run_plan.hpp"

namespace penstock {

struct SamplingOptions {
  double temperature = 0.8;  ///< 0: the likeliest token
  std::uint64_t seed = 1;
};

/// Draws a token from `logits`, at `position` of the random stream: softmax(logits / temperature), in double.
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position);

/// Continues texts with the weights on the devices: a forward over the last `sequence` tokens for each new one, through
/// the run's pipeline.
class Generation {
 public:
  Generation(const RunPlan& plan, RankState& state);

  /// The tokens that follow `prompt` (which must not be empty), up to `count` or to `end_of_text`; the same on all
  /// ranks. Collective.
  std::vector<std::int32_t> extend(const Communicator& world, std::vector<std::int32_t> prompt, std::int32_t count,
                                   std::optional<std::int32_t> end_of_text, const SamplingOptions& options);
  std::int64_t completed() const { return executor_.completed(); }
  std::string pending(std::int32_t first_rank) const { return executor_.pending(first_rank); }

 private:
  std::int32_t next_token(const Communicator& world, std::span<const std::int32_t> window,
                          const SamplingOptions& options, std::uint64_t position);

  const RunPlan* plan_;
  RankState* state_;
  ComputeWork work_;
  Executor executor_;
};

}  // namespace penstock
