// SPDX-License-Identifier: Apache-2.0
#include "schedule/partition.hpp"

#include <numeric>

#include "base/counted.hpp"
#include "base/error.hpp"

namespace penstock {

namespace {

Partition cut(const std::vector<std::int32_t>& per_stage) {
  Partition partition;
  std::int32_t begin = 0;
  for (const std::int32_t count : per_stage) {
    partition.stages.push_back({Layer{begin}, Layer{begin + count}});
    begin += count;
  }
  return partition;
}

std::string sum_text(const std::vector<std::int32_t>& per_stage) {
  return fmt::format("{}", fmt::join(per_stage, " + "));
}

}  // namespace

Partition even_partition(std::int32_t layers, std::int32_t stages) {
  if (stages < 1) fail(ExitCode::bad_input, "a pipeline of {} stages was asked for; it has at least 1", stages);
  if (layers < stages) {
    fail(ExitCode::bad_input,
         "{} cannot fill {} (pipeline ranks x virtual stages): every stage needs a layer; use at most {} or a deeper "
         "model",
         counted(layers, "layer"), counted(stages, "stage"), counted(layers, "stage"));
  }
  std::vector<std::int32_t> per_stage(static_cast<std::size_t>(stages), layers / stages);
  for (std::int32_t stage = 0; stage < layers % stages; ++stage) ++per_stage[static_cast<std::size_t>(stage)];
  return cut(per_stage);
}

Partition listed_partition(std::int32_t layers, const std::vector<std::int32_t>& per_stage) {
  for (std::size_t stage = 0; stage < per_stage.size(); ++stage) {
    if (per_stage[stage] < 1) {
      fail(ExitCode::bad_input, "stage {} is given {}; every stage needs at least 1", stage,
           counted(per_stage[stage], "layer"));
    }
  }
  const auto sum = std::accumulate(per_stage.begin(), per_stage.end(), std::int64_t{0});
  if (sum != layers) {
    fail(ExitCode::bad_input, "the layers per stage, {} = {}, are not the model's {}", sum_text(per_stage), sum,
         counted(layers, "layer"));
  }
  return cut(per_stage);
}

PerStage<Stage> feeding_stages(const Partition& forward, const Partition& backward) {
  PerStage<Stage> fed_by;
  Stage feeding{0};
  for (const LayerRange& range : backward.stages) {
    while (forward.stages[feeding].end <= range.begin) feeding = feeding.next();
    fed_by.push_back(feeding);
  }
  return fed_by;
}

}  // namespace penstock
