// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/reference/values.hpp"
#include "kernels/tensor.hpp"

namespace penstock::test {

/// A matrix that owns its memory and takes and gives doubles.
class Tensor {
 public:
  Tensor(DType type, std::int64_t rows, std::int64_t columns)
      : bytes_(static_cast<std::size_t>(rows * columns * size_of(type))), type_{type}, rows_{rows}, columns_{columns} {}
  Tensor(DType type, std::int64_t rows, std::int64_t columns, const std::vector<double>& values)
      : Tensor{type, rows, columns} {
    for (std::int64_t i = 0; i < rows * columns; ++i) set(i, values.at(static_cast<std::size_t>(i)));
  }

  Matrix matrix() { return {bytes_.data(), type_, rows_, columns_}; }
  operator Matrix() { return matrix(); }       // NOLINT(google-explicit-constructor)
  operator ConstMatrix() { return matrix(); }  // NOLINT(google-explicit-constructor)
  std::int64_t size() const { return rows_ * columns_; }

  double operator[](std::int64_t index) const {
    const ConstMatrix view{bytes_.data(), type_, rows_, columns_};
    return reference::element(view, index / columns_, index % columns_);
  }
  void set(std::int64_t index, double value) {
    if (type_ == DType::i32) {
      matrix().as<std::int32_t>()[index] = static_cast<std::int32_t>(value);
    } else {
      reference::set_element(matrix(), index / columns_, index % columns_, value);
    }
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < size(); ++i) all.push_back((*this)[i]);
    return all;
  }

 private:
  std::vector<std::byte> bytes_;
  DType type_;
  std::int64_t rows_;
  std::int64_t columns_;
};

}  // namespace penstock::test
