// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_directory.hpp"
#include "support/tensor_near.hpp"
#include "support/test_data.hpp"

namespace penstock::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Actual, class Expected>
std::string complaint(const Actual& actual, const Expected& expected, double tolerance) {
  return tensors_are_near("actual", "expected", "tolerance", actual, expected, tolerance).message();
}

TEST(TensorsAreNear, ComparesByNorm) {
  const std::vector<float> expected{3, 4};  // of norm 5

  EXPECT_EQ(complaint(std::vector<float>{3, 4.5}, expected, 0.11), "");
  EXPECT_THAT(complaint(std::vector<float>{3, 4.5}, expected, 0.09), AllOf(HasSubstr("0.1"), HasSubstr("element 1")));
}

TEST(TensorsAreNear, ComparesOtherTypesAndReadsBf16Bits) {
  const std::vector<float> values{1.5F, -2.0F};  // exact in bf16

  EXPECT_TENSOR_NEAR(to_bf16_bits(values), (std::vector<double>{1.5, -2.0}), 0.0);
  EXPECT_TENSOR_NEAR(values, to_bf16_bits(values), 0.0);
}

TEST(TensorsAreNear, RefusesNaNAndOtherSizes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> one{1};

  EXPECT_THAT(complaint(std::vector<float>{1, nan, 1}, std::vector<float>{1, 1, 9}, 10), HasSubstr("element 1"));
  EXPECT_NE(complaint(one, std::vector<float>{nan}, 10), "");
  EXPECT_THAT(complaint(one, std::vector<float>{1, 1}, 10), HasSubstr("2"));
  EXPECT_EQ(complaint(std::vector<float>{}, std::vector<float>{}, 0), "");
}

TEST(TensorsAreNear, MeasuresAgainstOneWhereNothingIsExpected) {
  EXPECT_EQ(complaint(std::vector<float>{0.1F}, std::vector<float>{0}, 0.11), "");
  EXPECT_NE(complaint(std::vector<float>{0.1F}, std::vector<float>{0}, 0.09), "");
}

TEST(Bf16Bits, RoundToNearestAndTiesToEven) {
  EXPECT_EQ(to_bf16_bits(1.0F), 0x3F80);
  EXPECT_EQ(to_bf16_bits(1.0F + 0x1p-8F), 0x3F80);      // half way: to the even one
  EXPECT_EQ(to_bf16_bits(1.0F + 3 * 0x1p-8F), 0x3F82);  // half way: to the even one
  EXPECT_EQ(to_bf16_bits(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);
  EXPECT_TRUE(std::isnan(from_bf16_bits(to_bf16_bits(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(from_bf16_bits(to_bf16_bits(-std::numeric_limits<float>::infinity())),
            -std::numeric_limits<float>::infinity());
}

TEST(TestData, IsTheSameForAStreamAndDiffersBetweenStreams) {
  EXPECT_EQ(normal_floats(10, 1), normal_floats(10, 1));
  EXPECT_NE(normal_floats(10, 1), normal_floats(10, 2));
  EXPECT_EQ(random_bytes(10, 1), random_bytes(10, 1));
}

TEST(TestData, HasTheAskedRange) {
  for (const int value : uniform_integers(1000, 7, 1)) {
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 7);
  }
  double sum = 0;
  for (const double value : normal_values(10'000, 1)) sum += value;
  EXPECT_LT(std::abs(sum / 10'000), 0.04);  // four standard deviations of the mean
}

TEST(ATemporaryDirectory, HoldsFilesAndGoesWithThem) {
  std::filesystem::path path;
  {
    const TemporaryDirectory folder;
    path = folder.path();
    const std::string file = folder.write("inner/name.txt", std::string("a\0b", 3));
    EXPECT_TRUE(std::filesystem::exists(file));
    EXPECT_EQ(folder.read("inner/name.txt"), std::string("a\0b", 3));
    EXPECT_ANY_THROW(folder.read("absent"));
    EXPECT_NE(TemporaryDirectory{}.path(), path);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace penstock::test
