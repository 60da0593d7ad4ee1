// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "comm/communicator.hpp"
#include "data/samples.hpp"
#include "execute/compute_work.hpp"
#include "execute/executor.hpp"
#include "execute/rank_state.hpp"
#include "execute/run_plan.hpp"

namespace penstock {

/// The validation loss of the weights on the devices, with the run's forward-only schedule.
class Validation {
 public:
  /// `batches`: global batches of the validation samples that are used; 0: all. The arguments outlive the object.
  Validation(const RunPlan& plan, RankState& state, const ValidationSamples& samples, std::int32_t batches);

  /// Mean loss over the target tokens [nats], the same on all ranks. Windows go through in micro-batches of the plan,
  /// and their losses are added in order of windows: the bits do not depend on the layout. Collective.
  double loss(const Communicator& world);
  std::int64_t completed() const { return executor_.completed(); }
  std::string pending(std::int32_t first_rank) const { return executor_.pending(first_rank); }

 private:
  void upload_round(std::int64_t round);

  const RunPlan* plan_;
  RankState* state_;
  const ValidationSamples* samples_;
  std::int64_t rounds_;
  std::int64_t targets_;
  ComputeWork work_;
  Executor executor_;
};

}  // namespace penstock
