// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

/// Element types. f64 exists for the reference kernels, which are checked against finite differences in it.
enum class DType : std::uint8_t { bf16, f32, f64, i32 };

constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::bf16:
      return 2;
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::i32:
      return 4;
  }
  return 0;
}

/// A row-major matrix of device memory that someone else owns: rows x columns elements, rows `stride` elements apart.
/// A vector is a matrix with one row.
struct Matrix {
  std::byte* data = nullptr;
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  Matrix() = default;
  Matrix(std::byte* d, DType t, std::int64_t r, std::int64_t c) : data{d}, type{t}, rows{r}, columns{c}, stride{c} {}
  std::int64_t size() const { return rows * columns; }
  std::int64_t bytes() const { return size() * size_of(type); }
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// The same, read only.
struct ConstMatrix {
  const std::byte* data = nullptr;
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  ConstMatrix() = default;
  ConstMatrix(const std::byte* d, DType t, std::int64_t r, std::int64_t c)
      : data{d}, type{t}, rows{r}, columns{c}, stride{c} {}
  ConstMatrix(const Matrix& m)
      : data{m.data}, type{m.type}, rows{m.rows}, columns{m.columns}, stride{m.stride} {}  // NOLINT
  std::int64_t size() const { return rows * columns; }
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

}  // namespace penstock
