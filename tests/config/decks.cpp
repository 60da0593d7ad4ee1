// SPDX-License-Identifier: Apache-2.0
//
// The decks in input/, which users start from. Tests run from the repository's root.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/deck_texts.hpp"
#include "config/listing.hpp"

namespace penstock {
namespace {

std::vector<std::string> shipped_decks() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator{"input"}) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(ShippedDecks, AreSoundAndSayNothingThatSurprises) {
  const auto paths = shipped_decks();
  ASSERT_GE(paths.size(), 5U);
  for (const auto& path : paths) {
    const auto [deck, notes] = read_noted_deck(path);
    EXPECT_THAT(notes, testing::IsEmpty()) << path;
    EXPECT_EQ(read(effective_deck(deck)), deck) << path;
  }
}

TEST(ShippedDecks, CanBeTriedForTwoSteps) {
  for (const auto& path : shipped_decks()) EXPECT_NO_THROW(read_deck(path, {"training.steps=2"})) << path;
}

TEST(ShippedDecks, HaveDirectoriesOfTheirOwn) {
  std::set<std::string> directories;
  for (const auto& path : shipped_decks()) directories.insert(read_deck(path).output.directory);

  EXPECT_EQ(directories.size(), shipped_decks().size());
}

}  // namespace
}  // namespace penstock
