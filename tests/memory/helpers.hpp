// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/random.hpp"
#include "memory/plan.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"

namespace penstock {

/// Stage s on rank s % p, v stages on each.
inline PerStage<Rank> dealt(std::int32_t p, std::int32_t v) {
  PerStage<Rank> rank_of;
  for (std::int32_t stage = 0; stage < p * v; ++stage) rank_of.push_back(Rank{stage % p});
  return rank_of;
}

/// The same bytes for every stage: `each` of every kind.
inline PerStage<StageBytes> uniform_bytes(std::int32_t stages, std::int64_t each) {
  StageBytes bytes;
  bytes.fill(Bytes{each});
  return PerStage<StageBytes>(stages, bytes);
}

/// Bytes of 1 to 4096 that differ by stage and kind, from a seed; a sixteenth of them 0.
inline PerStage<StageBytes> random_bytes(std::int32_t stages, std::uint64_t seed) {
  const CounterRandom random{seed, RandomPurpose::tests, 0};
  PerStage<StageBytes> result(stages);
  std::uint64_t count = 0;
  for (StageBytes& bytes : result) {
    for (Bytes& each : bytes) {
      const auto draw = static_cast<std::int64_t>(random.uniform(count++) * 4352.0) - 256;
      each = Bytes{draw < 0 ? 0 : draw};
    }
  }
  return result;
}

inline RankPlan plan_alone(const Schedule& schedule, Rank rank, const PerStage<StageBytes>& bytes) {
  return plan_rank(schedule, rank, bytes, lay_out_persistent({&schedule}, rank, {bytes}));
}

}  // namespace penstock
