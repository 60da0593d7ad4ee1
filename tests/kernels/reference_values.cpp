// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/reference/values.hpp"
#include "reference_tensor.hpp"

namespace penstock::test {
namespace {

using reference::bf16_bits;
using reference::from_bf16_bits;

double rounded(double value) {
  return from_bf16_bits(bf16_bits(value));
}

TEST(ReferenceBf16, EveryValueSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const double value = from_bf16_bits(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(rounded(value)));
    } else {
      ASSERT_EQ(bf16_bits(value), bits);
    }
  }
}

TEST(ReferenceBf16, TiesGoToEven) {
  EXPECT_EQ(rounded(1 + 0x1p-8), 1.0);
  EXPECT_EQ(rounded(1 + 0x3p-8), 1 + 0x1p-6);
  EXPECT_EQ(rounded(-1 - 0x1p-8), -1.0);
}

TEST(ReferenceBf16, ABitBeyondFloatStillBreaksATie) {
  EXPECT_EQ(rounded(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(rounded(1 + 0x3p-8 - 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(rounded(-1 - 0x1p-8 - 0x1p-40), -1 - 0x1p-7);
}

TEST(ReferenceBf16, TooLargeIsInfinite) {
  const double largest = from_bf16_bits(0x7F7F);

  EXPECT_EQ(rounded(1e300), std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(-1e300), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(largest * (1 + 0x1p-10)), largest);
}

TEST(ReferenceBf16, TinyValuesRoundToSubnormalsOrZero) {
  const double smallest = from_bf16_bits(1);

  EXPECT_EQ(rounded(smallest * 0.75), smallest);
  EXPECT_EQ(rounded(smallest * 0.5), 0.0);
  EXPECT_EQ(rounded(1e-300), 0.0);
}

TEST(ReferenceStore, RoundsASumOnce) {
  Tensor stream{DType::bf16, 1, 1, {256.0}};

  reference::add_to(stream, reference::load(Tensor{DType::f64, 1, 1, {1.0 + 0x1p-30}}));

  EXPECT_EQ(stream[0], 258.0);
}

}  // namespace
}  // namespace penstock::test
