// SPDX-License-Identifier: Apache-2.0
#include "app/validation.hpp"

#include <algorithm>
#include <vector>

#include "app/batches.hpp"
#include "app/step_exchange.hpp"

namespace penstock {
namespace {

std::int64_t rounds_of(const ValidationSamples& samples, std::int64_t global_batch, std::int32_t batches) {
  const std::int64_t whole = divide_up(samples.windows(), global_batch);
  return batches > 0 ? std::min<std::int64_t>(whole, batches) : whole;
}

}  // namespace

Validation::Validation(const RunPlan& plan, RankState& state, const ValidationSamples& samples, std::int32_t batches)
    : plan_{&plan},
      state_{&state},
      samples_{&samples},
      rounds_{rounds_of(samples, plan.shape.global_batch, batches)},
      targets_{std::min(samples.targets(), rounds_ * plan.shape.global_batch * plan.shape.sequence)},
      work_{plan.validation,          state.place().coordinate, state.kernels(), ComputeWork::Result::losses,
            &state.parameter_fetch(), &state.vocabulary_peers()},
      executor_{plan.validation.schedule, plan.validation.ranks[state.place().coordinate], state.resources(work_)} {}

double Validation::loss(const Communicator& world) {
  double sum = 0;
  for (std::int64_t round = 0; round < rounds_; ++round) {
    upload_round(round);
    work_.begin(1.0);
    executor_.run(0, nullptr);
    RankReport own;
    if (work_.has_losses()) own.losses = work_.losses();
    for (const double loss : exchange(world, own).losses) sum += loss;
  }
  return sum / static_cast<double>(targets_);
}

void Validation::upload_round(std::int64_t round) {
  const std::int64_t share = plan_->shape.global_batch / plan_->shape.replicas;
  const std::int64_t first = round * plan_->shape.global_batch + state_->place().replica * share;
  upload_batch(*state_, work_, plan_->validation, share,
               [&](auto inputs, auto targets) { samples_->read_batch(first, share, inputs, targets); });
}

}  // namespace penstock
