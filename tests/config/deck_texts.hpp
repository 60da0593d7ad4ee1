// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "config/reader.hpp"

namespace penstock {

/// The least that a deck must say, in two lines; further lines can follow.
inline const std::string smallest_deck = "data: {train: [doc]}\ntraining: {steps: 10}\n";

inline Deck read(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_deck(text, "run.yaml", overrides);
}

/// What the user reads when the deck is refused; empty when it is taken.
inline std::string faults_of(std::string_view text, const std::vector<std::string>& overrides = {}) {
  try {
    read(text, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return {};
}

}  // namespace penstock
