// SPDX-License-Identifier: Apache-2.0
#include "app/generation.hpp"

#include <algorithm>
#include <cmath>

#include "app/batches.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace penstock {

std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return static_cast<std::int32_t>(largest - logits.begin());
  std::vector<double> cumulative(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp((double{logits[i]} - double{*largest}) / options.temperature);
    cumulative[i] = sum;
  }
  const CounterRandom random{options.seed, RandomPurpose::text_sampling, 0};
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), random.uniform(position) * sum);
  return static_cast<std::int32_t>(std::min(found, cumulative.end() - 1) - cumulative.begin());
}

Generation::Generation(const RunPlan& plan, RankState& state)
    : plan_{&plan},
      state_{&state},
      work_{plan.generation,          state.place().coordinate, state.kernels(), ComputeWork::Result::logits,
            &state.parameter_fetch(), &state.vocabulary_peers()},
      executor_{plan.generation.schedule, plan.generation.ranks[state.place().coordinate], state.resources(work_)} {}

std::vector<std::int32_t> Generation::extend(const Communicator& world, std::vector<std::int32_t> prompt,
                                             std::int32_t count, std::optional<std::int32_t> end_of_text,
                                             const SamplingOptions& options) {
  require(!prompt.empty(), "generation starts from at least one token");
  const auto start = prompt.size();
  const auto longest = static_cast<std::size_t>(plan_->shape.sequence);
  for (std::int32_t i = 0; i < count; ++i) {
    const auto size = std::min(longest, prompt.size());
    const auto token = next_token(world, std::span{prompt}.last(size), options, static_cast<std::uint64_t>(i));
    if (token == end_of_text) break;
    prompt.push_back(token);
  }
  return {prompt.begin() + static_cast<std::ptrdiff_t>(start), prompt.end()};
}

std::int32_t Generation::next_token(const Communicator& world, std::span<const std::int32_t> window,
                                    const SamplingOptions& options, std::uint64_t position) {
  upload_batch(*state_, work_, plan_->generation, 1, [&](auto inputs, auto targets) {
    // What follows the window is not seen by its last token: the attention is causal.
    std::fill(std::copy(window.begin(), window.end(), inputs.begin()), inputs.end(), 0);
    std::fill(targets.begin(), targets.end(), -1);
  });
  work_.begin(1.0);
  work_.want_logits_of(static_cast<std::int64_t>(window.size()) - 1);
  executor_.run(0, nullptr);
  const auto& schedule = plan_->generation.schedule;
  const int speaker = schedule.rank_of[schedule.last_stage()].value();
  std::int32_t token = 0;
  if (world.rank() == speaker) {
    std::vector<float> logits(static_cast<std::size_t>(plan_->shape.model.vocabulary));
    state_->read_workspace(generation_logits_offset(*plan_), std::as_writable_bytes(std::span{logits}));
    token = draw_token(logits, options, position);
  }
  world.broadcast(std::as_writable_bytes(std::span{&token, 1}), speaker);
  return token;
}

}  // namespace penstock
