// SPDX-License-Identifier: Apache-2.0
//
// The memory formulas of SlimPipe's planner (SC 2025, doi 10.1145/3712285.3759855; its published CSV files), for one
// device. A is what one micro-batch keeps over the whole model; p ranks, v virtual stages of each, n slices.
#pragma once

#include "cost/shape.hpp"

namespace penstock {

/// A / (t c): S x L x activation_bytes_per_token / (t c), of one sequence times the micro-batch.
double whole_activation_bytes(const CostShape& shape, Recompute recompute);

/// The first rank's peak with SlimPipe's schedule: A / (t c p) x (1 + 2 (p - 1) / (n v)).
double slimpipe_activation_bytes(const CostShape& shape, std::int32_t virtual_stages, Recompute recompute);

/// The first rank's peak with interleaved 1F1B, where all layers are in slices of one: A / (t c) x (1 + (p - 1) / (p
/// v)).
double interleaved_activation_bytes(const CostShape& shape, std::int32_t virtual_stages, Recompute recompute);

/// Gradients of keys and values that wait for earlier slices:
/// [(p - 1) + p (v + 1) (n/p - 1) / 2] / n x 8 h S / (t c): fp32, full h whatever the number of key heads, and one
/// layer in each virtual stage, as the authors' planner has it. @pre n is a multiple of p
double slimpipe_kv_gradient_bytes(const CostShape& shape, std::int32_t virtual_stages);

/// Logits of a whole sequence, shared by all devices: 4 S V / (t c p).
double slimpipe_logits_bytes(const CostShape& shape);

/// Weights and gradients: 6 bytes a parameter / (t p), those of experts also / e. The whole model's, divided evenly.
double slimpipe_weight_bytes(const CostShape& shape);

/// Masters and moments: 12 bytes a parameter / (t p d), those of experts also / e.
double slimpipe_optimizer_bytes(const CostShape& shape);

}  // namespace penstock
