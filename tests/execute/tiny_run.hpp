// SPDX-License-Identifier: Apache-2.0
//
// Small runs, whose plans and steps the tests look at.
#pragma once

#include <cstdint>

#include "execute/run_plan.hpp"
#include "kernels/kernels.hpp"
#include "kernels/workers.hpp"

namespace penstock::test {

enum class Tied : std::uint8_t { no, yes };

/// Eight layers, so that four ranks have two stages each.
inline ModelSpec tiny_model(Family family, Tied tied, Precision precision = Precision::fp32) {
  ModelSpec spec;
  spec.family = family;
  spec.layers = 8;
  spec.hidden = 16;
  spec.heads = 2;
  spec.kv_heads = family == Family::gpt2 ? 2 : 1;
  spec.head_size = 8;
  spec.ffn = 24;
  spec.vocabulary = 19;
  spec.positions = 6;
  spec.tie_embeddings = tied == Tied::yes;
  spec.precision = precision;
  return spec;
}

/// Four micro-batches of two sequences of six tokens.
inline RunShape tiny_run(const ModelSpec& model, std::int32_t pipeline, std::int32_t replicas = 1) {
  RunShape shape;
  shape.model = model;
  shape.pipeline = pipeline;
  shape.replicas = replicas;
  shape.sequence = 6;
  shape.micro_batch = 2;
  shape.global_batch = 8 * replicas;
  shape.device_capacity = Bytes{std::int64_t{1} << 30};
  return shape;
}

/// The scratch of kernels, and so the plan, follows from their threads.
inline RunPlan plan_of(const RunShape& shape, std::int32_t threads = 1) {
  Workers workers{threads};
  return make_run_plan(shape, *make_host_kernels(workers));
}

}  // namespace penstock::test
