// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of AdamW share: a stage, and the triad a = b + s c that its memory traffic is held against. Bytes
// are counted with ordinary stores: 16 an element for the triad (a is read before it is written), 28 for AdamW (master,
// moments and gradient read, all but the gradient written), and 2 (bf16) or 4 (fp32) for the working copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "base/host_block.hpp"
#include "base/units.hpp"
#include "kernels/workers.hpp"
#include "optimizer/host_stage.hpp"
#include "optimizer/step.hpp"

namespace penstock {

constexpr std::int64_t parameter_elements = std::int64_t{1} << 24;
constexpr int parameter_count_of_stage = 4;
constexpr std::int64_t elements_of_stage = parameter_elements * parameter_count_of_stage;

inline HostStageShape benchmark_stage(DType storage) {
  HostStageShape shape;
  for (int i = 0; i < parameter_count_of_stage; ++i) {
    Parameter parameter;
    parameter.name = "layers/" + std::to_string(i) + "/ffn/up/weight";
    parameter.role = ParameterRole::up_weight;
    parameter.columns = parameter_elements;
    parameter.init_deviation = 0.02;
    shape.parameters.push_back({parameter, i, shape.working_bytes, shape.gradient_bytes});
    shape.working_bytes += Bytes{parameter_elements * size_of(storage)};
    shape.gradient_bytes += Bytes{parameter_elements * 4};
  }
  shape.storage = storage;
  return shape;
}

/// Masters and gradients that are no zeros, so that every page is there.
inline void fill(HostStage& stage, Workers& workers) {
  stage.initialize(1, workers);
  std::fill_n(reinterpret_cast<float*>(stage.gradients().data()), elements_of_stage, 1e-3F);
}

inline double bytes_of_step(DType storage, std::int64_t elements) {
  return static_cast<double>(elements * (28 + size_of(storage)));
}

/// Three arrays in one block, as AdamW's lie: huge pages, the same tiles and workers.
class Triad {
 public:
  explicit Triad(std::int64_t elements) : elements_{elements}, block_{Bytes{3 * elements * 4}, "the triad"} {
    std::fill_n(block_.as<float>(), 3 * elements, 1.0F);
  }
  void run(Workers& workers) {
    float* a = block_.as<float>();
    workers.for_each(elements_ / default_tile, [a, n = elements_](std::int64_t tile) {
      float* __restrict out = a + tile * default_tile;
      const float* __restrict b = out + n;
      const float* __restrict c = b + n;
      for (std::int64_t i = 0; i < default_tile; ++i) out[i] = b[i] + 0.5F * c[i];
    });
  }
  double bytes() const { return static_cast<double>(elements_) * 16; }

 private:
  std::int64_t elements_;
  HostBlock block_;
};

template <class Work>
double seconds_of(const Work& work) {
  const Seconds start = now();
  work();
  return (now() - start).value;
}

/// Of all threads of the process.
template <class Work>
double processor_seconds_of(const Work& work) {
  const auto seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double start = seconds();
  work();
  return seconds() - start;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// What the work takes when nothing else gets in its way.
inline double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace penstock
