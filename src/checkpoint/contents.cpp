// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/contents.hpp"

#include "model/parameters.hpp"

namespace penstock {

std::vector<CheckpointDataset> datasets_of(const ModelSpec& model) {
  std::vector<CheckpointDataset> datasets;
  const auto parameters = parameters_of(model);
  for (const char* prefix : {"parameters/", "optimizer/first_moment/", "optimizer/second_moment/"}) {
    for (const auto& parameter : parameters)
      datasets.push_back({prefix + parameter.name, parameter.rows, parameter.columns, parameter.one_dimensional});
  }
  return datasets;
}

}  // namespace penstock
