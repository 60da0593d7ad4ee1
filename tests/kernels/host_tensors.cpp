// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/host_cases.hpp"
#include "kernels/reference/values.hpp"

namespace penstock::test {
namespace {

constexpr std::size_t guard_bytes = 128;
constexpr std::byte guard{0xA5};

}  // namespace

GuardedTensor::GuardedTensor(DType type, std::int64_t rows, std::int64_t columns)
    : type_{type},
      rows_{rows},
      columns_{columns},
      memory_(static_cast<std::size_t>(rows * columns * size_of(type)) + 2 * guard_bytes, guard) {}

Matrix GuardedTensor::matrix() {
  return {memory_.data() + guard_bytes, type_, rows_, columns_};
}
ConstMatrix GuardedTensor::matrix() const {
  return {memory_.data() + guard_bytes, type_, rows_, columns_};
}

void GuardedTensor::set(const std::vector<double>& values) {
  for (std::int64_t row = 0; row < rows_; ++row) {
    for (std::int64_t column = 0; column < columns_; ++column) {
      const double value = values[static_cast<std::size_t>(row * columns_ + column)];
      if (type_ == DType::i32) {
        matrix().as<std::int32_t>()[row * columns_ + column] = static_cast<std::int32_t>(value);
      } else {
        reference::set_element(matrix(), row, column, value);
      }
    }
  }
}

std::vector<double> GuardedTensor::values() const {
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows_; ++row) {
    for (std::int64_t column = 0; column < columns_; ++column) {
      values.push_back(reference::element(matrix(), row, column));
    }
  }
  return values;
}

std::vector<std::byte> GuardedTensor::bytes() const {
  return memory_;
}

bool GuardedTensor::guards_are_intact() const {
  const auto is_guard = [](std::byte byte) { return byte == guard; };
  const auto size = static_cast<std::ptrdiff_t>(guard_bytes);
  return std::all_of(memory_.begin(), memory_.begin() + size, is_guard) &&
         std::all_of(memory_.end() - size, memory_.end(), is_guard);
}

Tensors in_double(const Tensors& tensors) {
  Tensors result;
  for (const auto& [name, tensor] : tensors) {
    result[name] =
        GuardedTensor{tensor.type() == DType::i32 ? DType::i32 : DType::f64, tensor.rows(), tensor.columns()};
    result[name].set(tensor.values());
  }
  return result;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

}  // namespace penstock::test
