// SPDX-License-Identifier: Apache-2.0
//
// Shapes and hardware whose costs can be worked out by hand.
#pragma once

#include "cost/hardware.hpp"
#include "cost/shape.hpp"
#include "model/presets.hpp"
#include "schedule/partition.hpp"

namespace penstock {

inline constexpr double gib = double{1 << 30};

inline CostShape shape_of(const ModelSpec& model, std::int32_t stages) {
  CostShape shape;
  shape.model = model;
  shape.forward_stages = even_partition(model.layers, stages).stages;
  shape.sequence = 4096;
  shape.pipeline = stages;
  return shape;
}

/// Two layers of width 8, two heads of which share keys.
inline ModelSpec small_llama() {
  return {.family = Family::llama,
          .layers = 2,
          .hidden = 8,
          .heads = 2,
          .kv_heads = 1,
          .head_size = 4,
          .ffn = 10,
          .vocabulary = 5};
}

/// Round figures: 1e15 FLOP/s reached to a half by products, and a memory so fast that it never counts.
inline HardwareOptions round_hardware() {
  HardwareOptions hardware;
  hardware.name = "round";
  hardware.device = {.memory = {std::int64_t{80} << 30}, .bandwidth = {std::int64_t{1} << 62}};
  hardware.products = {.peak = 1e15, .efficiency = {0.5}};
  hardware.attention = {.fused = true, .forward = 0.25, .backward = 0.125};
  hardware.node = {.devices = 8, .host_memory = {std::int64_t{1} << 40}, .optimizer_rate = 1e9};
  hardware.inside = {.bandwidth = {100'000'000'000}, .latency = {1e-6}};
  hardware.between = {.bandwidth = {10'000'000'000}, .latency = {2e-6}, .shared_by = 4};
  hardware.to_device = {.bandwidth = {20'000'000'000}, .latency = {3e-6}, .shared_by = 2};
  hardware.to_host = {.bandwidth = {25'000'000'000}, .latency = {4e-6}};
  return hardware;
}

}  // namespace penstock
