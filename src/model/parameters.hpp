// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "model/spec.hpp"

namespace penstock {

/// The role of a parameter inside its layer (or beside the layers); `stage` finds its tensors by it.
enum class ParameterRole : std::uint8_t {
  token_embedding,     ///< [vocabulary, hidden]
  position_embedding,  ///< [positions, hidden], gpt2
  attention_norm_weight,
  attention_norm_bias,
  query_weight,
  query_bias,  ///< [query_width, hidden], [query_width]; biases: gpt2
  key_weight,
  key_bias,  ///< [kv_width, hidden]
  value_weight,
  value_bias,  ///< [kv_width, hidden]
  attention_output_weight,
  attention_output_bias,  ///< [hidden, query_width]
  ffn_norm_weight,
  ffn_norm_bias,
  router_weight,  ///< [experts, hidden], mixture of experts; the three matrices below are then there for each expert
  gate_weight,    ///< [ffn, hidden], llama
  up_weight,
  up_bias,  ///< [ffn, hidden]
  down_weight,
  down_bias,  ///< [hidden, ffn]
  final_norm_weight,
  final_norm_bias,
  head_weight  ///< [vocabulary, hidden]; absent when tied
};

/// One parameter of the model, in its true shape (no padding).
struct Parameter {
  std::string name;  ///< canonical: "embedding/token/weight", "layers/7/attention/query/weight", "final_norm/weight",
                     ///< "head/weight"
  ParameterRole role = ParameterRole::token_embedding;
  Layer layer;               ///< of the model; 0 beside the layers
  std::int64_t rows = 1;     ///< output features, or entries of a table
  std::int64_t columns = 1;  ///< input features; 1-D parameters have rows = 1
  bool one_dimensional = false;
  bool of_expert = false;     ///< belongs to one expert of a mixture
  bool decays = true;         ///< weight decay applies (matrices; not norms and biases)
  double init_deviation = 0;  ///< standard deviation of the initial normal; 0 with init_constant
  double init_constant = 0;   ///< value of norms (1) and biases (0)
  std::int64_t size() const { return rows * columns; }
};

/// All parameters in canonical order: embeddings, layers ascending, final norm, head. A tied head is not listed twice.
/// Initialization as GPT-2: N(0, 0.02), residual projections 0.02 / sqrt(2 layers), biases 0, norms 1.
std::vector<Parameter> parameters_of(const ModelSpec& spec);

/// The parameters of a stage with layers [begin, end), in canonical order; `first` adds the embeddings, `last` the
/// final norm and the head. A last stage with a tied head that is not also the first gets "embedding/token/weight" at
/// the end: its own copy of the table, for which the first stage's is the master. A stage that is first and last has
/// one table, at the front.
std::vector<Parameter> parameters_of_stage(const ModelSpec& spec, Layer begin, Layer end, bool first, bool last);

/// The parameters of a share of the vocabulary of `rows` rows, in canonical order: rows of the
/// token table (tied: of the head too), the position table (`first`, gpt2), the final norm (`last`), rows of the head.
/// Their names are those of the whole parameters, their shapes those of the rows.
std::vector<Parameter> parameters_of_share(const ModelSpec& spec, std::int64_t rows, bool first, bool last);

/// The place in parameters_of of a parameter by its name. @throws Error internal if the model has none of this name
std::int32_t canonical_index(const ModelSpec& spec, std::string_view name);

/// The place in parameters_of of the first parameter of the stage that begins with layer `begin`; 0 for the first
/// stage. The others follow it, but for a last stage's copy of a tied table.
std::int32_t canonical_begin(const ModelSpec& spec, Layer begin);

/// Writes the initial values of elements [first, first + count) of `parameter` to `out`: the constant, or normal
/// numbers that depend on the seed, the canonical name and the element's index alone, so that any rank can draw any
/// part.
/// @throws Error internal if the range leaves the parameter.
void initialize(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::int64_t count, float* out);

/// Number of parameters of the model (a tied table counted once), those of all experts included.
std::int64_t parameter_count(const ModelSpec& spec);

/// Numbers of parameters of the parts that stages are made of.
struct ParameterCounts {
  std::int64_t layer = 0;           ///< of one layer, without its experts
  std::int64_t layer_experts = 0;   ///< of all experts of one layer
  std::int64_t layer_matrices = 0;  ///< of `layer`, those in matrices
  std::int64_t first = 0;           ///< embeddings
  std::int64_t last = 0;            ///< final norm and head, or the copy of a tied table
  std::int64_t first_and_last = 0;  ///< both on one stage: a tied table once
};
ParameterCounts parameter_counts(const ModelSpec& spec);

/// Model FLOPs of one trained token, forward and backward, no recompute: 6 x matrix parameters (the head included,
/// tables not, and of experts only those that a token goes through) + causal attention 6 x layers x query_width x
/// sequence (half of the full 12).
double training_flops_per_token(const ModelSpec& spec, std::int64_t sequence);

/// What attending to one key costs a token, over what the matrix products of a layer cost it: 4 x query_width FLOPs
/// over 2 x matrix parameters (of experts those that a token goes through). The same forward and backward, and in every
/// layer; the head is not counted, which one stage alone has.
double attention_cost_per_key(const ModelSpec& spec);

}  // namespace penstock
