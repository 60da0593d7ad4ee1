// SPDX-License-Identifier: Apache-2.0
//
// Bytes that the stages of a real model keep on one device. Statistics of norms and of the softmax (4 bytes a token and
// norm or head) are left out, as in the published figures.
#pragma once

#include "cost/shape.hpp"
#include "schedule/buffers.hpp"

namespace penstock {

/// Bytes of activations that one layer keeps for one token, all devices of a rank together: 12h + 4h_kv + 6f for Llama
/// in bf16 (its input, two norms, queries, attention, and the stream between attention and feed-forward: 2 bytes each
/// of h; keys and values; gate, up and their product), 6f once for each active expert; 16h + 4f for GPT-2, whose
/// feed-forward keeps the inputs of GELU and of the last product. Recomputation of `attention` keeps all but a norm and
/// the queries, `selective` all but those of f, `layers` the layer's input (and with slices keys and values, which are
/// not counted here). `full`: what R fills.
double activation_bytes_per_token(const ModelSpec& model, Recompute recompute);

/// The same for gradients that a split backward keeps between I and W: at the outputs of all products of a layer, and
/// what recomputation within the input gradient made again and weight gradients read.
double operand_bytes_per_token(const ModelSpec& model, Recompute recompute);

/// Bytes by kind of buffer of each stage: entry s has those of forward stage s and of backward stage s. With vocabulary
/// parallelism the last stage of each rank keeps its share of the logits, with its activations unless it is the model's
/// last.
PerStage<StageBytes> stage_bytes(const CostShape& shape);

/// Parameters of a stage on one device, experts by the devices that share them.
struct StageParameters {
  double dense = 0;
  double experts = 0;
  double total() const { return dense + experts; }
};
/// Of these, those whose states and step one device has: all that hold the same parameters share them.
double stepped_parameters(const CostShape& shape, const StageParameters& parameters);
PerStage<StageParameters> stage_parameters(const CostShape& shape, const PerStage<LayerRange>& stages);

}  // namespace penstock
