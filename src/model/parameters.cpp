// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr double deviation = 0.02;

// Two residual adds a layer: the projections that write into the stream are scaled so that its variance does not grow.
double residual_deviation(const ModelSpec& spec) {
  return deviation / std::sqrt(2.0 * spec.layers);
}

Parameter matrix(std::string name, ParameterRole role, std::int64_t rows, std::int64_t columns, double spread) {
  return {.name = std::move(name), .role = role, .rows = rows, .columns = columns, .init_deviation = spread};
}

Parameter vector(std::string name, ParameterRole role, std::int64_t size, double constant) {
  return {.name = std::move(name),
          .role = role,
          .columns = size,
          .one_dimensional = true,
          .decays = false,
          .init_constant = constant};
}

Parameter token_table(const ModelSpec& spec) {
  return matrix("embedding/token/weight", ParameterRole::token_embedding, spec.vocabulary, spec.hidden, deviation);
}

// The parameters of one layer, names relative to it; the list is written once for both families.
class LayerList {
 public:
  LayerList(const ModelSpec& spec, Layer layer)
      : spec_{spec}, layer_{layer}, has_biases_{spec.family == Family::gpt2} {}

  void norm(const char* name, ParameterRole weight, ParameterRole bias) {
    add(vector(fmt::format("{}/weight", name), weight, spec_.hidden, 1.0));
    if (has_biases_) add(vector(fmt::format("{}/bias", name), bias, spec_.hidden, 0.0));
  }
  void product(const std::string& name, ParameterRole weight, ParameterRole bias, std::int64_t outputs,
               std::int64_t inputs, double spread) {
    add(matrix(fmt::format("{}/weight", name), weight, outputs, inputs, spread));
    if (has_biases_) add(vector(fmt::format("{}/bias", name), bias, outputs, 0.0));
  }
  void router() {
    add(matrix("ffn/router/weight", ParameterRole::router_weight, spec_.experts, spec_.hidden, deviation));
  }
  /// @param folder "ffn", or that of an expert
  void feed_forward(const std::string& folder, double down_deviation) {
    using Role = ParameterRole;
    if (spec_.family == Family::llama) {
      add(matrix(folder + "/gate/weight", Role::gate_weight, spec_.ffn, spec_.hidden, deviation));
    }
    product(folder + "/up", Role::up_weight, Role::up_bias, spec_.ffn, spec_.hidden, deviation);
    product(folder + "/down", Role::down_weight, Role::down_bias, spec_.hidden, spec_.ffn, down_deviation);
  }
  void experts(double down_deviation) {
    const std::size_t before = parameters_.size();
    for (std::int32_t expert = 0; expert < spec_.experts; ++expert) {
      feed_forward(fmt::format("ffn/experts/{}", expert), down_deviation);
    }
    for (std::size_t i = before; i < parameters_.size(); ++i) parameters_[i].of_expert = true;
  }
  std::vector<Parameter> take() { return std::move(parameters_); }

 private:
  void add(Parameter parameter) {
    parameter.name = fmt::format("layers/{}/{}", layer_, parameter.name);
    parameter.layer = layer_;
    parameters_.push_back(std::move(parameter));
  }

  const ModelSpec& spec_;
  Layer layer_;
  bool has_biases_;
  std::vector<Parameter> parameters_;
};

std::vector<Parameter> parameters_of_layer(const ModelSpec& spec, Layer layer) {
  using Role = ParameterRole;
  LayerList list{spec, layer};
  list.norm("attention_norm", Role::attention_norm_weight, Role::attention_norm_bias);
  list.product("attention/query", Role::query_weight, Role::query_bias, spec.query_width(), spec.hidden, deviation);
  list.product("attention/key", Role::key_weight, Role::key_bias, spec.kv_width(), spec.hidden, deviation);
  list.product("attention/value", Role::value_weight, Role::value_bias, spec.kv_width(), spec.hidden, deviation);
  list.product("attention/output", Role::attention_output_weight, Role::attention_output_bias, spec.hidden,
               spec.query_width(), residual_deviation(spec));
  list.norm("ffn_norm", Role::ffn_norm_weight, Role::ffn_norm_bias);
  if (spec.is_mixture()) {
    list.router();
    list.experts(residual_deviation(spec));
  } else {
    list.feed_forward("ffn", residual_deviation(spec));
  }
  return list.take();
}

void append_embeddings(std::vector<Parameter>& list, const ModelSpec& spec) {
  list.push_back(token_table(spec));
  if (spec.family != Family::gpt2) return;
  list.push_back(
      matrix("embedding/position/weight", ParameterRole::position_embedding, spec.positions, spec.hidden, deviation));
}

void append_head(std::vector<Parameter>& list, const ModelSpec& spec, bool has_table) {
  list.push_back(vector("final_norm/weight", ParameterRole::final_norm_weight, spec.hidden, 1.0));
  if (spec.family == Family::gpt2) {
    list.push_back(vector("final_norm/bias", ParameterRole::final_norm_bias, spec.hidden, 0.0));
  }
  if (!spec.tie_embeddings) {
    list.push_back(matrix("head/weight", ParameterRole::head_weight, spec.vocabulary, spec.hidden, deviation));
  } else if (!has_table) {
    list.push_back(token_table(spec));
  }
}

}  // namespace

std::vector<Parameter> parameters_of_stage(const ModelSpec& spec, Layer begin, Layer end, bool first, bool last) {
  std::vector<Parameter> list;
  if (first) append_embeddings(list, spec);
  for (Layer layer = begin; layer < end; layer = layer.next()) {
    for (Parameter& parameter : parameters_of_layer(spec, layer)) list.push_back(std::move(parameter));
  }
  if (last) append_head(list, spec, first);
  return list;
}

std::vector<Parameter> parameters_of_share(const ModelSpec& spec, std::int64_t rows, bool first, bool last) {
  std::vector<Parameter> list;
  for (Parameter& parameter : parameters_of_stage(spec, Layer{0}, Layer{0}, true, true)) {
    const bool is_cut =
        parameter.role == ParameterRole::token_embedding || parameter.role == ParameterRole::head_weight;
    if (is_cut) parameter.rows = rows;
    if (is_cut || (parameter.role == ParameterRole::position_embedding ? first : last)) {
      list.push_back(std::move(parameter));
    }
  }
  return list;
}

std::int32_t canonical_index(const ModelSpec& spec, std::string_view name) {
  const auto all_parameters = parameters_of(spec);
  const auto found = std::find_if(all_parameters.begin(), all_parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  require(found != all_parameters.end(), "the model has no parameter {}", name);
  return static_cast<std::int32_t>(found - all_parameters.begin());
}

std::int32_t canonical_begin(const ModelSpec& spec, Layer begin) {
  if (begin == Layer{0}) return 0;
  const auto embeddings = parameters_of_stage(spec, Layer{0}, Layer{0}, true, false).size();
  return static_cast<std::int32_t>(embeddings) +
         begin.value() * static_cast<std::int32_t>(parameters_of_layer(spec, Layer{0}).size());
}

std::vector<Parameter> parameters_of(const ModelSpec& spec) {
  return parameters_of_stage(spec, Layer{0}, Layer{spec.layers}, true, true);
}

ParameterCounts parameter_counts(const ModelSpec& spec) {
  const auto size_of = [](const std::vector<Parameter>& list) {
    std::int64_t size = 0;
    for (const Parameter& parameter : list) size += parameter.size();
    return size;
  };
  ParameterCounts counts;
  for (const Parameter& parameter : parameters_of_layer(spec, Layer{0})) {
    (parameter.of_expert ? counts.layer_experts : counts.layer) += parameter.size();
    if (!parameter.of_expert && !parameter.one_dimensional) counts.layer_matrices += parameter.size();
  }
  counts.first = size_of(parameters_of_stage(spec, Layer{0}, Layer{0}, true, false));
  counts.last = size_of(parameters_of_stage(spec, Layer{0}, Layer{0}, false, true));
  counts.first_and_last = size_of(parameters_of_stage(spec, Layer{0}, Layer{0}, true, true));
  return counts;
}

std::int64_t parameter_count(const ModelSpec& spec) {
  const ParameterCounts counts = parameter_counts(spec);
  return spec.layers * (counts.layer + counts.layer_experts) + counts.first_and_last;
}

namespace {

/// Matrix parameters of a layer that a token goes through.
double active_layer_matrices(const ModelSpec& spec) {
  const ParameterCounts counts = parameter_counts(spec);
  const double active = spec.is_mixture() ? double{1} * spec.active_experts / spec.experts : 0;
  return static_cast<double>(counts.layer_matrices) + active * static_cast<double>(counts.layer_experts);
}

}  // namespace

double training_flops_per_token(const ModelSpec& spec, std::int64_t sequence) {
  const double layer = active_layer_matrices(spec);
  const double head = double{1} * spec.vocabulary * spec.hidden;  // tied or not
  const double attention = 6.0 * spec.layers * spec.query_width() * static_cast<double>(sequence);
  return 6.0 * (spec.layers * layer + head) + attention;
}

double attention_cost_per_key(const ModelSpec& spec) {
  return 4.0 * spec.query_width() / (2.0 * active_layer_matrices(spec));
}

}  // namespace penstock
