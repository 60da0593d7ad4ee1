// SPDX-License-Identifier: Apache-2.0
//
// Small stages for the optimizer's tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/random.hpp"
#include "optimizer/host_stage.hpp"

namespace penstock::tests {

/// Parameters "p0", "p1", ... of the given sizes; every second one decays. The first is a layer's, none is a table.
inline std::vector<Parameter> parameters_of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<Parameter> parameters;
  for (const std::int64_t size : sizes) {
    Parameter parameter;
    parameter.name = fmt::format("p{}", parameters.size());
    parameter.role = ParameterRole::query_weight;
    parameter.columns = size;
    parameter.decays = parameters.size() % 2 == 0;
    parameter.init_deviation = 0.02;
    parameters.push_back(parameter);
  }
  return parameters;
}

/// Parameters [begin, end) of `model` as a stage, laid out with gaps between them.
inline HostStageShape shape_of(const std::vector<Parameter>& model, std::size_t begin, std::size_t end, DType storage,
                               std::int32_t replicas = 1, std::int32_t replica = 0) {
  HostStageShape shape;
  for (std::size_t i = begin; i < end; ++i) {
    shape.parameters.push_back({model[i], static_cast<std::int32_t>(i), shape.working_bytes, shape.gradient_bytes});
    shape.working_bytes += Bytes{round_up(model[i].size() * size_of(storage), 64)};
    shape.gradient_bytes += Bytes{round_up(model[i].size() * size_of(DType::f32), 64)};
  }
  shape.storage = storage;
  shape.replicas = replicas;
  shape.replica = replica;
  return shape;
}

/// Gradients that depend on the parameter's place in the model, the element, and `stream`: never zero, of all
/// magnitudes.
inline void fill_gradients(const HostStage& stage, std::uint64_t stream) {
  for (std::size_t i = 0; i < stage.shape().parameters.size(); ++i) {
    const auto gradient = stage.gradient(static_cast<std::int32_t>(i));
    const auto canonical = static_cast<std::uint64_t>(stage.shape().parameters[i].canonical);
    const CounterRandom random{stream, RandomPurpose::tests, canonical};
    for (std::size_t j = 0; j < gradient.size(); j += 4) {
      const auto words = random.words(j);
      for (std::size_t k = 0; k < 4 && j + k < gradient.size(); ++k) {
        // The sign and 24 bits of a word, scaled by 2^-24 .. 2^-17.
        const auto magnitude =
            static_cast<float>((words[k] & 0xFFFFFFU) + 1U) * static_cast<float>(1U << (words[k] >> 29U));
        gradient[j + k] = ((words[k] >> 28U & 1U) != 0U ? -1.0F : 1.0F) * magnitude * 0x1p-24F;
      }
    }
  }
}

}  // namespace penstock::tests
