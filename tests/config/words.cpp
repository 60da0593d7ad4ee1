// SPDX-License-Identifier: Apache-2.0
#include "config/words.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::config {
namespace {

const std::vector<std::string> keys{"steps", "sequence", "global_batch", "micro_batch"};

TEST(NearestWord, FindsOneLetterChangedDroppedAddedOrSwapped) {
  EXPECT_EQ(nearest_word("stebs", keys), "steps");
  EXPECT_EQ(nearest_word("step", keys), "steps");
  EXPECT_EQ(nearest_word("stepps", keys), "steps");
  EXPECT_EQ(nearest_word("setps", keys), "steps");
}

TEST(NearestWord, TakesCapitalsAndDashesAsEqual) {
  EXPECT_EQ(nearest_word("Global-Batch", keys), "global_batch");
}

TEST(NearestWord, FindsNothingForOtherWords) {
  EXPECT_EQ(nearest_word("temperature", keys), "");
  EXPECT_EQ(nearest_word("", keys), "");
  EXPECT_EQ(nearest_word(std::string(100000, 's'), keys), "");
}

TEST(Shown, EscapesControlCharacters) {
  EXPECT_EQ(shown("a\tb\x7f"), "a\\x09b\\x7f");
}

TEST(Shown, CutsLongTextsBetweenCharacters) {
  const std::string text = std::string(59, 'a') + "\xc3\xa4" + std::string(50, 'b');  // byte 60 is the first of two

  EXPECT_EQ(shown(text), std::string(59, 'a') + "...");
  EXPECT_EQ(shown(std::string(60, 'a')), std::string(60, 'a'));
}

}  // namespace
}  // namespace penstock::config
