// SPDX-License-Identifier: Apache-2.0
//
// The operations of Kernels on small random tensors, as values, so that one test runs over all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace penstock::test {

/// A tensor between two rows of guard bytes.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(DType type, std::int64_t rows, std::int64_t columns);
  Matrix matrix();
  ConstMatrix matrix() const;
  DType type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// Stores `values` (rows x columns), rounded to the type.
  void set(const std::vector<double>& values);
  std::vector<double> values() const;
  /// The elements' bytes, to compare bit by bit.
  std::vector<std::byte> bytes() const;
  bool guards_are_intact() const;

 private:
  DType type_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::vector<std::byte> memory_;
};

using Tensors = std::map<std::string, GuardedTensor>;

/// One operation: how to make its tensors (inputs and outputs, outputs filled too), and how to call it.
struct Operation {
  std::string name;
  std::function<Tensors(DType storage, std::int64_t tokens)> make;
  std::function<void(Kernels&, Tensors&)> run;
  std::vector<std::string> outputs;
};

/// Every operation of Kernels, some in several shapes; sizes are no multiples of any block.
const std::vector<Operation>& operations();

/// The same tensors in double, for the reference kernels; integers stay.
Tensors in_double(const Tensors& tensors);

/// |a - b| / |b| by the Euclidean norm; 0 if both are 0.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

/// Host kernels with scratch for the tests' sizes.
class TestedKernels {
 public:
  /// Those of so many threads, shared by all tests.
  static TestedKernels& on(std::int32_t threads);
  explicit TestedKernels(std::int32_t threads);
  ~TestedKernels();
  TestedKernels(const TestedKernels&) = delete;
  TestedKernels& operator=(const TestedKernels&) = delete;
  Kernels& operator*() { return *kernels_; }
  bool guards_are_intact() const { return scratch_.guards_are_intact(); }

 private:
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Kernels> kernels_;
  GuardedTensor scratch_;
};

}  // namespace penstock::test
