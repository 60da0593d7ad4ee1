// SPDX-License-Identifier: Apache-2.0
#include "model/presets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/parameters.hpp"

namespace penstock {
namespace {

TEST(Presets, HaveThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameter_count(preset_spec(ModelPreset::gpt2_124m)), 124'439'808);
  EXPECT_EQ(parameter_count(preset_spec(ModelPreset::llama2_7b)), 6'738'415'616);
  EXPECT_EQ(parameter_count(preset_spec(ModelPreset::llama2_13b)), 13'015'864'320);
  EXPECT_EQ(parameter_count(preset_spec(ModelPreset::llama2_34b)), 33'743'970'304);
  EXPECT_EQ(parameter_count(preset_spec(ModelPreset::llama2_70b)), 68'976'648'192);
  EXPECT_EQ(parameter_count(preset_spec(ModelPreset::mixtral_8x7b)), 46'702'792'704);
}

/// Billions of parameters, from the name's digits behind its last underscore.
double billions_of(std::string_view name) {
  const std::string digits{name.substr(name.rfind('_') + 1)};
  return std::stod(digits);
}

// The names of SPipe and SlimPipe are rounded: 30 for 30.8 and 110 for 110.1, or 13 for 14.0 with a vocabulary of
// 128000.
TEST(Presets, AreAboutAsLargeAsTheirNamesSay) {
  for (const auto& entry : enum_names(ModelPreset{})) {
    if (entry.name.find('x') != std::string_view::npos || entry.name.starts_with("gpt2")) continue;
    const double billions = static_cast<double>(parameter_count(preset_spec(entry.value))) / 1e9;
    EXPECT_NEAR(billions / billions_of(entry.name), 1, 0.12) << entry.name;
  }
}

TEST(Presets, AreValid) {
  for (const auto& entry : enum_names(ModelPreset{})) {
    EXPECT_NO_THROW(check(preset_spec(entry.value))) << entry.name;
    EXPECT_EQ(deck_name(entry.value), entry.name);
  }
}

TEST(Mixture, HasARouterAndThreeMatricesForEachExpert) {
  const ModelSpec spec{.family = Family::llama, .layers = 1, .experts = 2, .active_experts = 1};

  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_of(spec)) {
    if (parameter.name.find("/ffn/") != std::string::npos) names.push_back(parameter.name);
    EXPECT_EQ(parameter.of_expert, parameter.name.find("/experts/") != std::string::npos) << parameter.name;
  }

  EXPECT_THAT(names, testing::ElementsAre("layers/0/ffn/router/weight", "layers/0/ffn/experts/0/gate/weight",
                                          "layers/0/ffn/experts/0/up/weight", "layers/0/ffn/experts/0/down/weight",
                                          "layers/0/ffn/experts/1/gate/weight", "layers/0/ffn/experts/1/up/weight",
                                          "layers/0/ffn/experts/1/down/weight"));
}

TEST(Mixture, CountsTheActiveExpertsInAToken) {
  ModelSpec spec{.family = Family::llama, .layers = 3, .experts = 4, .active_experts = 2};
  const double two = training_flops_per_token(spec, 64);

  spec.active_experts = 3;

  EXPECT_DOUBLE_EQ(training_flops_per_token(spec, 64) - two, 6.0 * 3 * 3 * 256 * 704);  // layers, matrices
}

TEST(ParameterCounts, OfTheirPartsAddUp) {
  for (const ModelPreset preset : {ModelPreset::gpt2_124m, ModelPreset::mixtral_8x7b}) {
    const ModelSpec spec = preset_spec(preset);
    std::int64_t listed = 0;
    for (const Parameter& parameter : parameters_of(spec)) listed += parameter.size();

    EXPECT_EQ(parameter_count(spec), listed);
  }
}

}  // namespace
}  // namespace penstock
