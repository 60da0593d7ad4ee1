// SPDX-License-Identifier: Apache-2.0
#include "trace/svg_style.hpp"

#include <gtest/gtest.h>

#include "schedule/semantics.hpp"

namespace penstock {
namespace {

TEST(Contrast, IsThatOfTheGuidelines) {
  const Color black{0, 0, 0};
  const Color white{255, 255, 255};

  EXPECT_DOUBLE_EQ(contrast(black, white), 21);
  EXPECT_DOUBLE_EQ(contrast(white, white), 1);
  // The palest grey that may carry white text, and the next: #767676 has 4.54, #777777 has 4.48.
  EXPECT_NEAR(contrast({0x76, 0x76, 0x76}, white), 4.54, 0.005);
  EXPECT_NEAR(contrast(white, {0x77, 0x77, 0x77}), 4.48, 0.005);
}

TEST(ABoxWithANumber, CanBeReadInEveryShade) {
  for (int number = 0; number < op_count; ++number) {
    const Op op = static_cast<Op>(number);
    if (lane_of(op) != Lane::compute) continue;
    for (const double fraction : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      EXPECT_GE(contrast(label_color, lightened(color_of(op), fraction)), 4.5) << name_of(op) << " at " << fraction;
    }
  }
}

}  // namespace
}  // namespace penstock
