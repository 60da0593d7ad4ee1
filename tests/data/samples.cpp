// SPDX-License-Identifier: Apache-2.0
#include "data/samples.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.hpp"
#include "data/order.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> order_of(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  const SampleOrder order{count, seed, epoch};
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(order[i]);
  return samples;
}

TEST(SampleOrder, TakesEverySampleOnce) {
  for (std::int64_t count = 1; count <= 300; ++count) {
    auto samples = order_of(count, 42, count % 5);
    std::sort(samples.begin(), samples.end());
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(samples[static_cast<std::size_t>(i)], i) << count;
  }
}

TEST(SampleOrder, DiffersBetweenEpochsAndSeeds) {
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32U, ~std::uint64_t{0}}) {
    for (std::int64_t epoch : {0, 1, 2}) orders.insert(order_of(50, seed, epoch));
  }

  EXPECT_EQ(orders.size(), 12U);
}

/// Checkpoints hold a sample's index alone: a changed order would silently train other data on resume.
TEST(SampleOrder, StaysAsItWas) {
  EXPECT_THAT(order_of(8, 1, 0), ElementsAre(1, 3, 5, 2, 7, 0, 4, 6));
}

TEST(SampleOrder, WorksOnCountsOverTwoToThe32) {
  const std::int64_t count = (std::int64_t{1} << 40) + 12345;
  const SampleOrder order{count, 3, 0};
  std::set<std::int64_t> seen;
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    seen.insert(order[count - 1 - i]);
    largest = std::max(largest, order[i]);
  }

  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_LT(*seen.rbegin(), count);
  EXPECT_GT(largest, count / 2);  // all of 1000 in the lower half: a chance of 2^-1000
  EXPECT_NO_THROW(SampleOrder(INT64_MAX, 1, 0)[INT64_MAX - 1]);
}

/// Over many epochs each place of a small set should see each sample equally often: chi-squared with (n-1)^2 degrees of
/// freedom k has mean k and deviation sqrt(2 k); six deviations are allowed.
void expect_uniform(std::int64_t count) {
  constexpr std::int64_t epochs = 4000;
  const auto n = static_cast<std::size_t>(count);
  std::vector<double> seen(n * n);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto samples = order_of(count, 9, epoch);
    for (std::size_t i = 0; i < n; ++i) ++seen[i * n + static_cast<std::size_t>(samples[i])];
  }
  const double expected = static_cast<double>(epochs) / static_cast<double>(count);
  double chi_squared = 0;
  for (const double times : seen) chi_squared += (times - expected) * (times - expected) / expected;
  const double freedom = static_cast<double>((count - 1) * (count - 1));
  EXPECT_NEAR(chi_squared, freedom, 6 * std::sqrt(2 * freedom)) << count;
}

TEST(SampleOrder, GivesEverySampleEveryPlaceEquallyOften) {
  for (const std::int64_t count : {2, 3, 5, 7, 16, 17, 30}) expect_uniform(count);
}

TEST(SampleOrder, LeavesNeighboursNoMoreOftenTogetherThanChance) {
  constexpr std::int64_t count = 10000;
  const auto samples = order_of(count, 5, 0);
  int together = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) together += samples[i] == samples[i - 1] + 1;

  EXPECT_LE(together, 10);  // Poisson of mean 1: more than 10 has a chance of 1e-8
}

struct Batch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

template <class Samples>
Batch read(const Samples& samples, std::int64_t first, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count * samples.sequence());
  Batch batch{std::vector<std::int32_t>(size, -7), std::vector<std::int32_t>(size, -7)};
  samples.read_batch(first, count, batch.inputs, batch.targets);
  return batch;
}

TrainingSamples training(std::int64_t tokens, std::int64_t sequence, std::uint64_t seed = 1) {
  return {stream_of(counting(tokens)), sequence, seed, 1 << 20, "data.train"};
}

TEST(TrainingSamples, CutTheStreamInWindowsThatOverlapByOne) {
  const auto samples = training(4 * 10 + 1, 10);
  std::set<std::int32_t> starts;

  const auto batch = read(samples, 0, samples.samples_per_epoch());

  for (std::size_t row = 0; row < 4; ++row) {
    const std::int32_t start = batch.inputs[row * 10];
    starts.insert(start);
    for (std::size_t t = 0; t < 10; ++t) {
      EXPECT_EQ(batch.inputs[row * 10 + t], start + static_cast<std::int32_t>(t));
      EXPECT_EQ(batch.targets[row * 10 + t], start + static_cast<std::int32_t>(t) + 1);
    }
  }
  EXPECT_THAT(starts, ElementsAre(0, 10, 20, 30));
}

TEST(TrainingSamples, CountSamplesAndTheTail) {
  for (std::int64_t tokens = 9; tokens <= 60; ++tokens) {
    const auto samples = training(tokens, 8);
    EXPECT_EQ(samples.samples_per_epoch(), (tokens - 1) / 8) << tokens;
    EXPECT_EQ(samples.unused_tokens(), (tokens - 1) % 8) << tokens;
  }
}

TEST(TrainingSamples, MakeOneOfExactlyAWindow) {
  const auto samples = training(17, 16);

  EXPECT_EQ(samples.samples_per_epoch(), 1);
  EXPECT_EQ(read(samples, 0, 1).inputs, counting(16));
  EXPECT_EQ(read(samples, 5, 1).targets, counting(16, 1));  // every epoch has the same one
  EXPECT_EQ(samples.description(), "1 sample of 16 tokens an epoch, 0 tokens at the end unused");
}

TEST(TrainingSamples, RefuseAStreamShorterThanAWindow) {
  for (const std::int64_t tokens : {0, 1, 5, 256}) {
    EXPECT_THAT(error_of(ExitCode::bad_input, [&] { training(tokens, 256); }),
                AllOf(HasSubstr("data.train: "), HasSubstr("needs 257 tokens"),
                      HasSubstr("the data have " + std::to_string(tokens) + ";")));
  }
}

TEST(TrainingSamples, DependOnTheIndexAloneAndNotOnTheBatches) {
  const auto samples = training(1000, 7);
  const auto whole = read(samples, 100, 100);  // over the border of the first epoch, at 142

  for (const std::int64_t part : {1, 3, 50}) {
    for (std::int64_t first = 0; first + part <= 100; first += part) {
      const auto rows = read(samples, 100 + first, part);
      EXPECT_TRUE(std::equal(rows.inputs.begin(), rows.inputs.end(), whole.inputs.begin() + first * 7)) << part;
      EXPECT_TRUE(std::equal(rows.targets.begin(), rows.targets.end(), whole.targets.begin() + first * 7)) << part;
    }
  }
}

TEST(TrainingSamples, TakeEachWindowOnceAnEpochAcrossBatches) {
  const auto samples = training(7 * 30 + 3, 7);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int32_t> starts;
    for (std::int64_t row = 0; row < 30; ++row) starts.insert(read(samples, epoch * 30 + row, 1).inputs[0]);
    EXPECT_EQ(starts.size(), 30U);
  }
}

TEST(TrainingSamples, ComeInANewOrderInEachEpochAndForEachSeed) {
  const auto samples = training(7 * 30 + 1, 7);

  EXPECT_NE(read(samples, 0, 30).inputs, read(samples, 30, 30).inputs);
  EXPECT_NE(read(samples, 0, 30).inputs, read(training(7 * 30 + 1, 7, 2), 0, 30).inputs);
  EXPECT_EQ(read(samples, 0, 30).inputs, read(training(7 * 30 + 1, 7), 0, 30).inputs);
}

TEST(TrainingSamples, ReadInputsOrTargetsAlone) {
  const auto samples = training(100, 5);
  const auto both = read(samples, 3, 2);
  std::vector<std::int32_t> inputs(10);
  std::vector<std::int32_t> targets(10);

  samples.read_batch(3, 2, inputs, {});
  samples.read_batch(3, 2, {}, targets);

  EXPECT_EQ(inputs, both.inputs);
  EXPECT_EQ(targets, both.targets);
}

TEST(TrainingSamples, ReadFarIntoTheTraining) {
  const auto samples = training(1000, 7);

  EXPECT_NO_THROW(read(samples, std::int64_t{1} << 50, 2));
}

TEST(TrainingSamples, RefuseTokensOutsideTheVocabularyInInputsAndTargets) {
  const TrainingSamples samples{stream_of({0, 1, 2, 9}), 3, 1, 9, "data.train"};
  std::vector<std::int32_t> out(3);

  EXPECT_NO_THROW(samples.read_batch(0, 1, out, {}));
  EXPECT_THAT(error_of(ExitCode::damaged_input, [&] { samples.read_batch(0, 1, {}, out); }),
              HasSubstr("memory, token 3: the token id 9 is outside the model's vocabulary of 9"));
}

TEST(TrainingSamples, RefuseArraysOfAnotherSize) {
  const auto samples = training(100, 5);
  std::vector<std::int32_t> out(9);

  EXPECT_THROW(samples.read_batch(0, 2, out, {}), Error);
  EXPECT_THROW(samples.read_batch(-1, 1, {}, {}), Error);
}

ValidationSamples validation(std::int64_t tokens, std::int64_t sequence) {
  return {stream_of(counting(tokens)), sequence, 1 << 20, "data.validation"};
}

TEST(ValidationSamples, TakeEveryTokenButTheFirstAsATargetOnce) {
  for (std::int64_t tokens = 2; tokens <= 40; ++tokens) {
    const auto samples = validation(tokens, 8);
    const auto batch = read(samples, 0, samples.windows());
    std::vector<std::int32_t> real;
    std::copy_if(batch.targets.begin(), batch.targets.end(), std::back_inserter(real), [](auto id) { return id >= 0; });
    EXPECT_EQ(real, counting(tokens - 1, 1)) << tokens;
    EXPECT_EQ(samples.targets(), tokens - 1);
    for (std::size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      EXPECT_EQ(batch.inputs[i], batch.targets[i] - 1);
    }
  }
}

TEST(ValidationSamples, FillTheLastWindowAndWindowsPastTheEnd) {
  const auto samples = validation(6, 4);  // 0 1 2 3 | 4 5

  const auto batch = read(samples, 1, 2);

  EXPECT_EQ(samples.windows(), 2);
  EXPECT_THAT(batch.inputs, ElementsAre(4, 5, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(5, -1, -1, -1, -1, -1, -1, -1));
}

TEST(ValidationSamples, MakeNoWindowOfTheLastTokenAlone) {
  const auto samples = validation(9, 4);  // 0..4, 4..8: token 8 is a target and nothing more

  EXPECT_EQ(samples.windows(), 2);
  EXPECT_THAT(read(samples, 1, 1).targets, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(samples.description(), "2 windows of 4 tokens, 8 targets");
}

TEST(ValidationSamples, NeedTwoTokens) {
  EXPECT_THAT(error_of(ExitCode::bad_input, [&] { validation(1, 8); }),
              HasSubstr("data.validation: validation needs at least 2"));
  EXPECT_EQ(validation(2, 8).windows(), 1);
}

}  // namespace
}  // namespace penstock
