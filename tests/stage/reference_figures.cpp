// SPDX-License-Identifier: Apache-2.0
//
// Loss and gradients against PyTorch's: an implementation that shares nothing with this one.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline.hpp"

namespace penstock::test {
namespace {

struct ParameterFigures {
  std::string name;
  double norm;
  std::vector<double> samples;  // elements size * {0, 1, 2, 3, 4} / 5 of the gradient
};

struct ModelFigures {
  std::string family;
  bool tied;
  double loss;
  std::vector<ParameterFigures> gradients;
};

const std::vector<ModelFigures>& figures() {
  static const std::vector<ModelFigures> all_figures{
#include "reference_figures.inc"
  };
  return all_figures;
}

// The models of scripts/reference_figures.py.
ModelSpec model_of(const ModelFigures& figures) {
  const bool llama = figures.family == "llama";
  return {.family = llama ? Family::llama : Family::gpt2,
          .layers = 2,
          .hidden = 16,
          .heads = 4,
          .kv_heads = llama ? 2 : 4,
          .head_size = 4,
          .ffn = 24,
          .vocabulary = 23,
          .positions = 9,
          .tie_embeddings = figures.tied};
}

// `scale` is a gradient's typical size: what the relative tolerance is relative to.
void expect_near(const std::vector<double>& gradient, const ParameterFigures& expected, double scale,
                 double tolerance) {
  EXPECT_NEAR(norm_of(gradient), expected.norm, tolerance * scale) << expected.name;
  for (std::size_t part = 0; part < expected.samples.size(); ++part) {
    const double actual = gradient[gradient.size() * part / 5];
    EXPECT_NEAR(actual, expected.samples[part], tolerance * scale) << expected.name << ", sample " << part;
  }
}

// A key bias of gpt2 has no gradient but rounding (its queries' scores all shift alike): it is measured by the query
// bias.
double scale_of(const std::vector<ParameterFigures>& gradients, std::size_t index) {
  return gradients[index].name.ends_with("key/bias") ? gradients[index - 2].norm : gradients[index].norm;
}

void expect_figures(const ModelFigures& expected, Kernels& kernels, DType storage, double tolerance) {
  Pipeline pipeline{{.model = model_of(expected), .sequences = 2, .tokens = 8, .storage = storage}, kernels};

  const double loss = pipeline.run(Backward::whole, 1.0);

  const Gradients gradients = pipeline.gradients();
  EXPECT_NEAR(loss, expected.loss, tolerance * expected.loss);
  ASSERT_EQ(expected.gradients.size(), parameters_of(model_of(expected)).size());
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const ParameterFigures& parameter = expected.gradients[i];
    expect_near(whole_gradient(gradients, parameter.name, expected.tied), parameter, scale_of(expected.gradients, i),
                tolerance);
  }
}

TEST(ReferenceFigures, AreThoseOfTheReferenceKernelsInDouble) {
  const auto kernels = make_reference_kernels();
  // About a thousand roundings of 2^-53 between a parameter and the loss, and as many back.
  for (const ModelFigures& expected : figures()) expect_figures(expected, *kernels, DType::f64, 1e-12);
}

TEST(ReferenceFigures, AreThoseOfTheReferenceKernelsInSinglePrecision) {
  const auto kernels = make_reference_kernels();
  for (const ModelFigures& expected : figures()) expect_figures(expected, *kernels, DType::f32, 1e-5);
}

TEST(ReferenceFigures, AreThoseOfTheHostKernelsInSinglePrecision) {
  const KernelsUnderTest kernels{KernelKind::host};
  for (const ModelFigures& expected : figures()) expect_figures(expected, *kernels, DType::f32, 1e-5);
}

}  // namespace
}  // namespace penstock::test
