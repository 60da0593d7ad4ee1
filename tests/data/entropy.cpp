// SPDX-License-Identifier: Apache-2.0
#include "data/entropy.hpp"

#include <cmath>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "data/data_files.hpp"

namespace penstock {
namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();
const double ln2 = std::log(2.0);

Entropies entropies(const std::vector<std::int32_t>& ids, std::int32_t vocabulary) {
  return entropies_of(source_of(ids, "memory"), vocabulary);
}

/// The definition itself, in the order of the symbols.
Entropies by_definition(const std::vector<std::int32_t>& ids) {
  std::map<std::int32_t, double> first;
  std::map<std::int32_t, double> second;
  std::map<std::pair<std::int32_t, std::int32_t>, double> both;
  const double total = static_cast<double>(ids.size() - 1);
  for (std::size_t t = 1; t < ids.size(); ++t) {
    ++first[ids[t - 1]];
    ++second[ids[t]];
    ++both[{ids[t - 1], ids[t]}];
  }
  Entropies result;
  for (const auto& [id, n] : second) result.unigram -= n / total * std::log(n / total);
  for (const auto& [pair, n] : both) result.conditional -= n / total * std::log(n / first[pair.first]);
  return result;
}

std::vector<std::int32_t> random_ids(std::size_t count, std::int32_t vocabulary, std::uint64_t stream) {
  const CounterRandom random{1, RandomPurpose::tests, stream};
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    const double u = random.uniform(i);
    ids.push_back(
        static_cast<std::int32_t>(u * u * vocabulary));  // uneven, so that the two entropies differ from log V
  }
  return ids;
}

TEST(Entropies, OfAnAlternatingStreamAreOneBitAndNone) {
  const auto result = entropies({0, 1, 0, 1, 0}, 2);  // targets 1 0 1 0

  EXPECT_NEAR(result.unigram, ln2, 4 * epsilon);
  EXPECT_EQ(result.conditional, 0.0);
  EXPECT_EQ(result.pairs, 4);
}

TEST(Entropies, OfAConstantStreamAreNone) {
  const auto result = entropies({5, 5, 5, 5}, 256);

  EXPECT_EQ(result.unigram, 0.0);
  EXPECT_EQ(result.conditional, 0.0);
}

/// 0 0 1 1 0: every pair once, so that knowing the token before does not help.
TEST(Entropies, OfAllPairsOnceAreBothOneBit) {
  const auto result = entropies({0, 0, 1, 1, 0}, 2);

  EXPECT_NEAR(result.unigram, ln2, 4 * epsilon);
  EXPECT_NEAR(result.conditional, ln2, 4 * epsilon);
}

/// a a a b: targets a a b; after a always: H = H(1/3) both ways.
TEST(Entropies, AreThoseComputedByHand) {
  const auto result = entropies({0, 0, 0, 1}, 2);
  const double expected = std::log(3.0) - 2.0 / 3.0 * ln2;

  EXPECT_NEAR(result.unigram, expected, 8 * epsilon);
  EXPECT_NEAR(result.conditional, expected, 8 * epsilon);
}

/// The sums differ from the definition's in the order of about M log M terms.
TEST(Entropies, EqualTheDefinitionForDenseAndSparseCounts) {
  for (const std::int32_t vocabulary : {2, 7, 256, 1024, 1025, 50257}) {
    const auto ids = random_ids(100'000, vocabulary, static_cast<std::uint64_t>(vocabulary));
    const auto result = entropies(ids, vocabulary);
    const auto expected = by_definition(ids);
    const double tolerance = 1e5 * epsilon * std::log(1e5);
    EXPECT_NEAR(result.unigram, expected.unigram, tolerance) << vocabulary;
    EXPECT_NEAR(result.conditional, expected.conditional, tolerance) << vocabulary;
  }
}

TEST(Entropies, AreOrderedAndBelowTheLogarithmOfTheVocabulary) {
  for (std::size_t count = 2; count < 60; ++count) {
    const auto result = entropies(random_ids(count, 9, count), 9);
    EXPECT_GE(result.conditional, 0.0);
    EXPECT_LE(result.conditional, result.unigram);
    EXPECT_LE(result.unigram, std::log(9.0) + 8 * epsilon);
  }
}

TEST(Entropies, DoNotDependOnTheSizeOfTheVocabulary) {
  const auto ids = random_ids(5000, 200, 3);

  EXPECT_EQ(entropies(ids, 256).conditional, entropies(ids, 60000).conditional);
  EXPECT_EQ(entropies(ids, 256).unigram, entropies(ids, 60000).unigram);
}

/// Blocks of 65536 tokens are read at a time: the pair across a border counts.
TEST(Entropies, CountPairsAcrossBlocks) {
  for (const std::size_t count : {65535U, 65536U, 65537U, 131073U}) {
    std::vector<std::int32_t> ids(count, 0);
    for (std::size_t i = 1; i < count; i += 2) ids[i] = 1;
    EXPECT_EQ(entropies(ids, 2).conditional, 0.0) << count;
    EXPECT_EQ(entropies(ids, 2).pairs, static_cast<std::int64_t>(count) - 1);
  }
}

TEST(Entropies, RefuseTooFewTokensAndForeignOnes) {
  EXPECT_THROW(entropies({1}, 2), Error);
  EXPECT_THROW(entropies({1, 2}, 2), Error);
}

TEST(Entropies, PrintInNatsAndBits) {
  EXPECT_EQ(to_text(Entropies{2 * ln2, ln2, 1}),
            "unigram entropy 1.386 nats (2.000 bits), conditional on the token before 0.693 nats (1.000 bits)");
}

}  // namespace
}  // namespace penstock
