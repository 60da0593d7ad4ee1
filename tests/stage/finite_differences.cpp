// SPDX-License-Identifier: Apache-2.0
//
// Every gradient of a model against central differences of its loss, in double with the reference kernels.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

// Central differences with step h err by h^2 f'''/6 and by 2^-53 |f| / h in rounding: with losses f of about 20 and
// third derivatives of about 10, h = 1e-5 gives about 2e-10 for both, against gradients of 1e-2 and more in norm.
constexpr double step = 1e-5;

std::vector<double> differences(Pipeline& pipeline, const Parameter& parameter, double loss_scale) {
  std::vector<double> slopes;
  for (std::int64_t i = 0; i < parameter.size(); ++i) {
    const double value = pipeline.parameter(parameter.name, i);
    pipeline.set_parameter(parameter.name, i, value + step);
    const double above = pipeline.forward(StageMath::Keep::nothing);
    pipeline.set_parameter(parameter.name, i, value - step);
    const double below = pipeline.forward(StageMath::Keep::nothing);
    pipeline.set_parameter(parameter.name, i, value);
    slopes.push_back(loss_scale * (above - below) / (2 * step));
  }
  return slopes;
}

struct FiniteDifferenceCase {
  std::string name;
  ModelSpec model;
  bool tied = false;
};

void PrintTo(const FiniteDifferenceCase& value, std::ostream* stream) {
  *stream << value.name;
}

class FiniteDifferences : public testing::TestWithParam<FiniteDifferenceCase> {};

TEST_P(FiniteDifferences, AgreeWithTheGradientOfEveryParameter) {
  const auto kernels = make_reference_kernels();
  PipelineShape shape{.model = GetParam().model, .sequences = 2, .tokens = 4};
  shape.model.layers = 2;
  shape.model.tie_embeddings = GetParam().tied;
  Pipeline pipeline{shape, *kernels};
  constexpr double loss_scale = 0.25;

  pipeline.run(Backward::whole, loss_scale);

  const Gradients gradients = pipeline.gradients();
  for (const Parameter& parameter : parameters_of(shape.model)) {
    const std::vector<double> gradient = whole_gradient(gradients, parameter.name, GetParam().tied);
    const std::vector<double> slopes = differences(pipeline, parameter, loss_scale);
    if (parameter.role == ParameterRole::key_bias) {
      // Without rotation a key bias shifts all scores of a query alike: softmax does not see it.
      EXPECT_LT(norm_of(gradient), 1e-13) << parameter.name;
      EXPECT_LT(norm_of(slopes), 1e-8) << parameter.name;
      continue;
    }
    EXPECT_GT(norm_of(slopes), 1e-2) << parameter.name << ": too small to say anything";
    EXPECT_TENSOR_NEAR(gradient, slopes, 1e-6) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(, FiniteDifferences,
                         testing::Values(FiniteDifferenceCase{"llama", small_llama(), false},
                                         FiniteDifferenceCase{"llama_tied", small_llama(), true},
                                         FiniteDifferenceCase{"gpt2", small_gpt2(), false},
                                         FiniteDifferenceCase{"gpt2_tied", small_gpt2(), true}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace penstock::test
