// SPDX-License-Identifier: Apache-2.0
//
// The two published settings that the planner is held against, for the tests (narrow searches) and for
// benchmarks/plan/published_tables.cpp (wide ones). Figures of the machines: input/hardware, from public benchmarks of
// single kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "config/hardware_file.hpp"
#include "model/presets.hpp"
#include "plan/search.hpp"

namespace penstock {

inline PlanRequest request_on(const std::string& hardware_file) {
  PlanRequest request;
  request.base.hardware = read_hardware(hardware_file);
  const DeviceFigures& device = request.base.hardware.device;
  request.capacity = device.memory - device.reserve;
  request.base.cost.optimizer = Place::device;
  return request;
}

/// SlimPipe's longest context (methods 3.1, 3.7): Llama 70B, 4 sequences of 2,097,152 tokens, 256 devices of 80 GB.
/// @param attention share of the peak of products, in both directions
inline PlanRequest long_context_request(const std::string& hardware_folder, double attention) {
  PlanRequest request = request_on(hardware_folder + "/h100.yaml");
  request.base.hardware.attention.forward = attention;
  request.base.hardware.attention.backward = attention;
  request.base.cost.model = preset_spec(ModelPreset::slimpipe_70b);
  request.base.cost.sequence = 1 << 21;
  request.base.cost.vocabulary_parallel = true;
  request.global_batch = 4;
  request.devices = 256;
  return request;
}

/// MEPipe's cluster (methods 2.1): Llama 13B, sequences of 4096 tokens, 64 RTX 4090 in nodes of 8.
inline PlanRequest small_memory_request(const std::string& hardware_folder, std::int64_t global_batch) {
  PlanRequest request = request_on(hardware_folder + "/rtx4090.yaml");
  request.base.cost.model = preset_spec(ModelPreset::llama2_13b);
  request.base.cost.sequence = 4096;
  request.global_batch = global_batch;
  request.devices = 64;
  request.search.neighbours = {Neighbours::pipeline, Neighbours::replicas};
  return request;
}

/// The layout that the authors ran at such contexts: tensor 8, context 2, pipeline 16, 5 virtual stages, 128 slices,
/// gate and up recomputed, all activations offloaded.
inline PlanRequest authors_layout(PlanRequest request) {
  request.search.kinds = {ScheduleKind::slimpipe};
  request.search.tensor = {8};
  request.search.context = {2};
  request.search.pipeline = {16};
  request.search.virtual_stages = {5};
  request.search.slices = {128};
  request.search.recompute = {Recompute::selective};
  request.search.offload_activations = {1};
  return request;
}

/// MEPipe's baselines.
inline constexpr auto rivals_of_svpp =
    std::to_array({ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1, ScheduleKind::zb_v});

}  // namespace penstock
