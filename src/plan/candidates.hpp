// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/modelled_run.hpp"
#include "plan/options.hpp"

namespace penstock {

/// What is planned for.
struct PlanRequest {
  ModelledRun base;  ///< the model, the sequence, the hardware, and every choice that the search leaves alone
  std::int64_t global_batch = 1;  ///< sequences of a step over all replicas
  std::int32_t devices = 1;
  Bytes capacity;  ///< of one device
  SearchOptions search;
};

/// Every layout and schedule that the request allows and the definitions of the schedules take. Combinations that
/// another kind already stands for (interleaved with one stage a rank is 1f1b) are left out.
std::vector<ModelledRun> candidates(const PlanRequest& request);

}  // namespace penstock
