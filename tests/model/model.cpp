// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "model/parameters.hpp"
#include "model/spec.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelSpec gpt2_124m() {
  return {.family = Family::gpt2,
          .layers = 12,
          .hidden = 768,
          .heads = 12,
          .kv_heads = 12,
          .head_size = 64,
          .ffn = 3072,
          .vocabulary = 50257,
          .positions = 1024,
          .tie_embeddings = true};
}

ModelSpec llama_7b() {
  return {.family = Family::llama,
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 32,
          .head_size = 128,
          .ffn = 11008,
          .vocabulary = 32000};
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  names.reserve(parameters.size());
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

const Parameter& named(const std::vector<Parameter>& parameters, const std::string& name) {
  for (const Parameter& parameter : parameters) {
    if (parameter.name == name) return parameter;
  }
  throw std::runtime_error{"no parameter " + name};
}

std::string fault_of(const ModelSpec& spec) {
  try {
    check(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return "";
}

TEST(ParameterCount, OfGpt2IsThePublishedOne) {
  EXPECT_EQ(parameter_count(gpt2_124m()), 124'439'808);
}

TEST(ParameterCount, OfLlama7bIsThePublishedOne) {
  EXPECT_EQ(parameter_count(llama_7b()), 6'738'415'616);
}

TEST(Parameters, OfLlamaStandInCanonicalOrder) {
  const ModelSpec spec{.family = Family::llama, .layers = 1};

  EXPECT_THAT(names_of(parameters_of(spec)),
              ElementsAre("embedding/token/weight", "layers/0/attention_norm/weight", "layers/0/attention/query/weight",
                          "layers/0/attention/key/weight", "layers/0/attention/value/weight",
                          "layers/0/attention/output/weight", "layers/0/ffn_norm/weight", "layers/0/ffn/gate/weight",
                          "layers/0/ffn/up/weight", "layers/0/ffn/down/weight", "final_norm/weight", "head/weight"));
}

TEST(Parameters, OfGpt2HaveABiasBesideEveryWeight) {
  ModelSpec spec = gpt2_124m();
  spec.layers = 1;

  EXPECT_THAT(
      names_of(parameters_of(spec)),
      ElementsAre("embedding/token/weight", "embedding/position/weight", "layers/0/attention_norm/weight",
                  "layers/0/attention_norm/bias", "layers/0/attention/query/weight", "layers/0/attention/query/bias",
                  "layers/0/attention/key/weight", "layers/0/attention/key/bias", "layers/0/attention/value/weight",
                  "layers/0/attention/value/bias", "layers/0/attention/output/weight", "layers/0/attention/output/bias",
                  "layers/0/ffn_norm/weight", "layers/0/ffn_norm/bias", "layers/0/ffn/up/weight",
                  "layers/0/ffn/up/bias", "layers/0/ffn/down/weight", "layers/0/ffn/down/bias", "final_norm/weight",
                  "final_norm/bias"));
}

TEST(Parameters, HaveTheShapesOfTheirProducts) {
  const ModelSpec spec{.hidden = 12, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocabulary = 7};
  const auto parameters = parameters_of(spec);

  const Parameter& query = named(parameters, "layers/3/attention/query/weight");
  const Parameter& key = named(parameters, "layers/3/attention/key/weight");
  const Parameter& output = named(parameters, "layers/3/attention/output/weight");
  const Parameter& down = named(parameters, "layers/3/ffn/down/weight");

  EXPECT_EQ(query.layer, Layer{3});
  EXPECT_THAT((std::vector{query.rows, query.columns}), ElementsAre(24, 12));
  EXPECT_THAT((std::vector{key.rows, key.columns}), ElementsAre(12, 12));
  EXPECT_THAT((std::vector{output.rows, output.columns}), ElementsAre(12, 24));
  EXPECT_THAT((std::vector{down.rows, down.columns}), ElementsAre(12, 20));
}

TEST(Parameters, OnlyMatricesDecay) {
  for (const Parameter& parameter : parameters_of(gpt2_124m())) {
    EXPECT_EQ(parameter.decays, !parameter.one_dimensional) << parameter.name;
    EXPECT_EQ(parameter.one_dimensional, parameter.rows == 1) << parameter.name;
  }
}

TEST(StageParameters, OfAllStagesAreThoseOfTheModel) {
  for (const ModelSpec& spec : {gpt2_124m(), llama_7b()}) {
    ModelSpec untied = spec;
    untied.tie_embeddings = false;
    std::vector<std::string> joined;
    for (int stage = 0; stage < 4; ++stage) {
      const Layer begin{stage * untied.layers / 4};
      const Layer end{(stage + 1) * untied.layers / 4};
      for (auto& name : names_of(parameters_of_stage(untied, begin, end, stage == 0, stage == 3)))
        joined.push_back(name);
    }

    EXPECT_EQ(joined, names_of(parameters_of(untied)));
    EXPECT_EQ(std::set<std::string>(joined.begin(), joined.end()).size(), joined.size());
  }
}

TEST(StageParameters, StandOneBehindTheOtherInTheModelsList) {
  for (const bool is_tied : {false, true}) {
    ModelSpec spec = gpt2_124m();
    spec.tie_embeddings = is_tied;
    const auto model = names_of(parameters_of(spec));
    for (const int begin : {0, 1, 5, 11}) {
      const auto stage = names_of(parameters_of_stage(spec, Layer{begin}, Layer{12}, begin == 0, true));
      const auto first = static_cast<std::size_t>(canonical_begin(spec, Layer{begin}));

      // All but a last stage's copy of a tied table.
      ASSERT_LE(first, model.size());
      EXPECT_TRUE(std::equal(model.begin() + static_cast<std::ptrdiff_t>(first), model.end(), stage.begin()));
    }
  }
}

TEST(StageParameters, OfATiedLastStageEndWithItsCopyOfTheTable) {
  const ModelSpec spec = gpt2_124m();

  const auto last = parameters_of_stage(spec, Layer{6}, Layer{12}, false, true);
  const auto only = names_of(parameters_of_stage(spec, Layer{0}, Layer{12}, true, true));

  EXPECT_EQ(last.back().name, "embedding/token/weight");
  EXPECT_EQ(last.back().size(), 50257 * 768);
  EXPECT_EQ(only.back(), "final_norm/bias");
}

TEST(TrainingFlops, CountMatricesHeadAndCausalAttention) {
  const ModelSpec spec{.family = Family::llama,
                       .layers = 2,
                       .hidden = 8,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_size = 4,
                       .ffn = 10,
                       .vocabulary = 5};
  const double matrices = 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 10) + 5 * 8;

  const double flops = training_flops_per_token(spec, 16);

  EXPECT_EQ(flops, 6 * matrices + 6 * 2 * 8 * 16);
}

TEST(Initialization, OfAPartEqualsThePartOfTheWhole) {
  const auto parameters = parameters_of(ModelSpec{});
  const Parameter& parameter = named(parameters, "layers/2/ffn/up/weight");
  std::vector<float> whole(static_cast<std::size_t>(parameter.size()));
  std::vector<float> part(100);

  initialize(parameter, 7, 0, parameter.size(), whole.data());
  initialize(parameter, 7, 1234, 100, part.data());

  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1234));
}

TEST(Initialization, HasTheDeviationOfTheParameter) {
  const auto parameters = parameters_of(ModelSpec{});
  const Parameter& parameter = named(parameters, "layers/2/ffn/down/weight");
  std::vector<float> values(static_cast<std::size_t>(parameter.size()));

  initialize(parameter, 7, 0, parameter.size(), values.data());

  const auto count = static_cast<double>(values.size());
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const double expected = 0.02 / std::sqrt(2.0 * 8);
  EXPECT_DOUBLE_EQ(parameter.init_deviation, expected);
  EXPECT_NEAR(sum / count, 0.0, 5 * expected / std::sqrt(count));  // 5 standard errors of a mean
  EXPECT_NEAR(std::sqrt(squares / count), expected, 5 * expected / std::sqrt(2 * count));  // and of a deviation
}

TEST(Initialization, DiffersBetweenParametersAndSeeds) {
  const auto parameters = parameters_of(ModelSpec{});
  std::set<float> firsts;
  std::size_t drawn = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.one_dimensional) continue;
    for (const std::uint64_t seed : {1, 2}) {
      float value = 0;
      initialize(parameter, seed, 0, 1, &value);
      firsts.insert(value);
      ++drawn;
    }
  }

  EXPECT_EQ(firsts.size(), drawn);
}

TEST(Initialization, OfNormsIsOneAndOfBiasesZero) {
  const auto parameters = parameters_of(gpt2_124m());
  std::vector<float> values(768, -1.0F);

  initialize(named(parameters, "final_norm/weight"), 1, 0, 768, values.data());
  EXPECT_THAT(values, testing::Each(1.0F));

  initialize(named(parameters, "final_norm/bias"), 1, 0, 768, values.data());
  EXPECT_THAT(values, testing::Each(0.0F));
}

TEST(Initialization, BeyondTheParameterIsRefused) {
  const auto parameters = parameters_of(ModelSpec{});
  float value = 0;

  EXPECT_THROW(initialize(parameters[0], 1, parameters[0].size(), 1, &value), Error);
}

TEST(CheckModel, AcceptsPublishedModels) {
  EXPECT_EQ(fault_of(gpt2_124m()), "");
  EXPECT_EQ(fault_of(llama_7b()), "");
}

TEST(CheckModel, NamesTheSizeThatIsNotPositive) {
  EXPECT_THAT(fault_of({.layers = 0}), HasSubstr("model.layers is 0"));
  EXPECT_THAT(fault_of({.hidden = -4}), HasSubstr("model.hidden is -4"));
  EXPECT_THAT(fault_of({.heads = 0}), HasSubstr("model.heads is 0"));
  EXPECT_THAT(fault_of({.vocabulary = 0}), HasSubstr("model.vocabulary is 0"));
}

TEST(CheckModel, NamesBothNumbersOfHeadsThatDoNotDivide) {
  EXPECT_THAT(fault_of({.heads = 8, .kv_heads = 3}), HasSubstr("model.heads = 8 is no multiple of model.kv_heads = 3"));
}

TEST(CheckModel, RefusesGroupedQueryAttentionInGpt2) {
  EXPECT_THAT(fault_of({.family = Family::gpt2, .heads = 8, .kv_heads = 4}), HasSubstr("family gpt2"));
}

TEST(CheckModel, RefusesAnOddHeadSizeOnlyWithRotaryPositions) {
  EXPECT_THAT(fault_of({.head_size = 5}), HasSubstr("model.head_size = 5 is odd"));
  EXPECT_EQ(fault_of({.family = Family::gpt2, .head_size = 5}), "");
}

TEST(CheckModel, NamesNumbersOfExpertsThatDoNotFit) {
  EXPECT_THAT(fault_of({.active_experts = 1}), HasSubstr("model.active_experts is 1, but there are no experts"));
  EXPECT_THAT(fault_of({.experts = 4}), HasSubstr("model.active_experts is 0; it must be from 1 to model.experts = 4"));
  EXPECT_THAT(fault_of({.experts = 4, .active_experts = 5}), HasSubstr("model.active_experts is 5"));
  EXPECT_THAT(fault_of({.family = Family::gpt2, .experts = 4, .active_experts = 2}), HasSubstr("family gpt2 has none"));
  EXPECT_EQ(fault_of({.experts = 4, .active_experts = 2}), "");
}

TEST(CheckModel, RefusesConstantsThatAreNotPositive) {
  EXPECT_THAT(fault_of({.norm_epsilon = 0}), HasSubstr("model.norm_epsilon is 0"));
  EXPECT_THAT(fault_of({.rope_theta = -1}), HasSubstr("model.rope_theta is -1"));
}

TEST(CheckModel, RefusesWidthsBeyond32Bits) {
  EXPECT_THAT(fault_of({.heads = 65536, .kv_heads = 65536, .head_size = 65536}), HasSubstr("65536 x 65536"));
}

}  // namespace
}  // namespace penstock
