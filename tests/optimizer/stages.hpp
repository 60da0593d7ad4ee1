// SPDX-License-Identifier: Apache-2.0
//
// Small stages for the optimizer's tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

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

/// A number that depends on `stream`, a parameter and an element: never zero, of either sign, from 2^-24 to 2^7.
inline float value_of(std::uint64_t stream, std::int32_t canonical, std::int64_t element) {
  std::uint64_t bits =
      (stream << 48U) ^ (static_cast<std::uint64_t>(canonical) << 40U) ^ static_cast<std::uint64_t>(element);
  for (const unsigned shift : {30U, 27U}) bits = (bits ^ (bits >> shift)) * 0x9E3779B97F4A7C15U;  // mixes all bits
  const auto magnitude = static_cast<float>((bits >> 40U) + 1U) * static_cast<float>(1U << (bits >> 32U & 7U));
  return ((bits >> 36U & 1U) != 0U ? -1.0F : 1.0F) * magnitude * 0x1p-24F;
}

inline void fill_gradients(const HostStage& stage, std::uint64_t stream) {
  for (std::size_t i = 0; i < stage.shape().parameters.size(); ++i) {
    const auto gradient = stage.gradient(static_cast<std::int32_t>(i));
    for (std::size_t j = 0; j < gradient.size(); ++j) {
      gradient[j] = value_of(stream, stage.shape().parameters[i].canonical, static_cast<std::int64_t>(j));
    }
  }
}

/// Masters that do not depend on the layout: `initialize` for large stages, without its normals.
inline void fill_masters(const HostStage& stage) {
  for (const auto& state : stage.state()) {
    const auto& entry = stage.shape().parameters[static_cast<std::size_t>(state.piece.parameter)];
    for (std::int64_t j = 0; j < state.piece.count; ++j) {
      state.master[j] = value_of(0, entry.canonical, state.piece.first + j);
    }
  }
}

}  // namespace penstock::tests
