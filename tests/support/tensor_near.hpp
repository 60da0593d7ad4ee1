// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "support/test_data.hpp"

namespace penstock::test {

/// An element as a double; std::uint16_t stands for the bits of a bf16.
template <class T>
double value_of(T element) {
  if constexpr (std::same_as<T, std::uint16_t>) {
    return from_bf16_bits(element);
  } else {
    return static_cast<double>(element);
  }
}

/// What separates two tensors: |actual - expected| / |expected| in the Euclidean norm, and the element that differs
/// most.
struct Difference {
  double relative = 0;
  std::size_t worst = 0;
};

/// @pre the sizes are equal. Relative to 1 when all of `expected` is zero; NaN if any element of either is.
template <class Actual, class Expected>
Difference difference_of(std::span<const Actual> actual, std::span<const Expected> expected) {
  double squared_difference = 0;
  double squared_norm = 0;
  double largest = -1;
  Difference result;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double e = value_of(expected[i]);
    const double difference = std::abs(value_of(actual[i]) - e);
    squared_difference += difference * difference;
    squared_norm += e * e;
    if (difference > largest || (std::isnan(difference) && !std::isnan(largest))) {
      largest = difference;
      result.worst = i;
    }
  }
  result.relative =
      std::sqrt(squared_difference) / (squared_norm > 0 || std::isnan(squared_norm) ? std::sqrt(squared_norm) : 1);
  return result;
}

template <class Actual, class Expected>
testing::AssertionResult tensors_are_near(const char* actual_text, const char* expected_text, const char* /*tolerance*/,
                                          const Actual& actual_range, const Expected& expected_range,
                                          double tolerance) {
  const std::span actual{std::as_const(actual_range)};
  const std::span expected{std::as_const(expected_range)};
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual_text << " has " << actual.size() << " elements, " << expected_text
                                       << " has " << expected.size();
  }
  const auto difference = difference_of(actual, expected);
  if (difference.relative <= tolerance) return testing::AssertionSuccess();  // false for NaN
  return testing::AssertionFailure() << actual_text << " differs from " << expected_text << " by "
                                     << difference.relative << " (relative, by norm), allowed is " << tolerance
                                     << "; most at element " << difference.worst << ": "
                                     << value_of(actual[difference.worst]) << " instead of "
                                     << value_of(expected[difference.worst]);
}

}  // namespace penstock::test

/// Compares two contiguous ranges (float, double, or std::uint16_t for the bits of bf16; they may differ) by
/// |actual - expected| <= tolerance * |expected|, in the Euclidean norm.
#define EXPECT_TENSOR_NEAR(actual, expected, tolerance) \
  EXPECT_PRED_FORMAT3(::penstock::test::tensors_are_near, actual, expected, tolerance)
#define ASSERT_TENSOR_NEAR(actual, expected, tolerance) \
  ASSERT_PRED_FORMAT3(::penstock::test::tensors_are_near, actual, expected, tolerance)
