// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2, 3 and 4 ranks, which share the vocabulary of a tiny model.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/outcome.hpp"
#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"

namespace penstock {
namespace {

using test::expect_near;
using test::expect_same;
using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;
using test::train;

class SharedVocabularyTest : public testing::Test {
 protected:
  /// Slices of six tokens: 2, 2, 1, 1, or three of 2 on three ranks; nineteen tokens are no multiple of the ranks.
  RunShape shape(const ModelSpec& model, std::int32_t virtual_stages = 1) const {
    auto of = tiny_run(model, size_);
    of.schedule = {.kind = ScheduleKind::slimpipe, .virtual_stages = virtual_stages, .slices = size_ == 3 ? 3 : 4};
    of.schedule.vocabulary_parallel = true;
    return of;
  }
  Communicator world_ = Communicator::world();
  int size_ = world_.size();
};

class SharedByRanks : public SharedVocabularyTest, public testing::WithParamInterface<ModelSpec> {};

TEST_P(SharedByRanks, GivesTheStepsOfAModelInOnePiece) {
  auto plain_shape = shape(GetParam());
  plain_shape.schedule.vocabulary_parallel = false;

  const auto plain = train(plain_shape, world_);
  const auto shared = train(shape(GetParam()), world_);

  expect_near(shared, plain);
}

TEST_P(SharedByRanks, GivesTheSameBitsDelayedAndOnTwoThreads) {
  const DelayOptions delays{static_cast<std::uint64_t>(100 + world_.rank()), Seconds{0.002}};

  expect_same(train(shape(GetParam()), world_, delays, 2), train(shape(GetParam()), world_));
}

TEST_P(SharedByRanks, GivesTheSameBitsInMoreStagesRecomputedAndSplit) {
  const auto expected = train(shape(GetParam()), world_);

  auto of = shape(GetParam(), 2);
  of.schedule.split_backward = true;
  expect_same(train(of, world_), expected);
  of.recompute = Recompute::full;
  expect_same(train(of, world_), expected);
}

TEST_P(SharedByRanks, EvaluatesWithTheLossesOfTraining) {
  TinyTraining training{shape(GetParam()), world_};
  const auto& own = training.plan.validation;
  const Rank rank{world_.rank()};
  ComputeWork work{own,
                   rank,
                   training.state.kernels(),
                   ComputeWork::Result::losses,
                   &training.state.parameter_fetch(),
                   &training.state.vocabulary_peers()};
  Executor executor{own.schedule, own.ranks[rank], training.state.resources(work)};

  test::upload(training.state, work, own, test::Batch{training.plan.shape, 1});
  work.begin(1.0);
  executor.run(1, nullptr);
  const auto losses = work.losses();
  EXPECT_EQ(training.state.peak_device_bytes(), own.ranks[rank].peak);
  training.step(1);

  EXPECT_EQ(training.work.losses(), losses);
  EXPECT_GT(losses.front(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, SharedByRanks,
                         testing::Values(tiny_model(Family::llama, Tied::no), tiny_model(Family::llama, Tied::yes),
                                         tiny_model(Family::gpt2, Tied::yes), tiny_model(Family::gpt2, Tied::no)),
                         [](const auto& of) {
                           return std::string{of.param.family == Family::llama ? "llama" : "gpt2"} +
                                  (of.param.tie_embeddings ? "_tied" : "_untied");
                         });

TEST_F(SharedVocabularyTest, GivesTheLossesOfAModelInOnePieceInHalfPrecision) {
  auto of = shape(tiny_model(Family::llama, Tied::yes, Precision::bf16));
  const auto shared = train(of, world_);
  of.schedule.vocabulary_parallel = false;

  const auto plain = train(of, world_);

  // Gradients of hidden states are rounded to 8 bits after each rank's part: seen through one step.
  ASSERT_EQ(shared.losses.size(), plain.losses.size());
  for (std::size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(shared.losses[i], plain.losses[i], 0x1p-7 * plain.losses[i]) << i;
  }
}

TEST_F(SharedVocabularyTest, FormsTheLogitsOfOnePositionOnTheLastRank) {
  const auto logits_of = [&](bool shares) {
    auto of = shape(tiny_model(Family::gpt2, Tied::yes));
    of.schedule.vocabulary_parallel = shares;
    TinyTraining training{of, world_};
    const auto& own = training.plan.generation;
    const Rank rank{world_.rank()};
    ComputeWork work{own,
                     rank,
                     training.state.kernels(),
                     ComputeWork::Result::logits,
                     &training.state.parameter_fetch(),
                     &training.state.vocabulary_peers()};
    Executor executor{own.schedule, own.ranks[rank], training.state.resources(work)};
    test::upload(training.state, work, own, test::Batch{training.plan.shape, 1});
    work.begin(1.0);
    work.want_logits_of(3);
    executor.run(1, nullptr);
    EXPECT_EQ(training.state.peak_device_bytes(), own.ranks[rank].peak);
    std::vector<float> logits(static_cast<std::size_t>(of.model.vocabulary));
    if (work.has_losses()) {
      training.state.read_workspace(generation_logits_offset(training.plan), std::as_writable_bytes(std::span{logits}));
    }
    return logits;
  };

  const auto plain = logits_of(false);
  const auto shared = logits_of(true);

  if (world_.rank() + 1 < size_) return;
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(shared[i], plain[i], 1e-6) << i;
}

TEST_F(SharedVocabularyTest, ReplicasGiveTheSameBitsWhateverTheirOrder) {
  if (size_ % 2 != 0) GTEST_SKIP() << "two replicas need an even number of ranks";
  auto of = tiny_run(tiny_model(Family::llama, Tied::yes), size_ / 2, 2);
  of.schedule = {.kind = ScheduleKind::slimpipe, .slices = 2};
  of.schedule.vocabulary_parallel = true;

  const auto expected = train(of, world_);

  const DelayOptions delays{static_cast<std::uint64_t>(7 + world_.rank()), Seconds{0.002}};
  expect_same(train(of, world_, delays), expected);
}

TEST_F(SharedVocabularyTest, KeepsItsPartOfTheLogits) {
  auto of = shape(tiny_model(Family::llama, Tied::no));
  of.model.vocabulary = 4096 * size_;
  const auto plan = test::plan_of(of);
  of.schedule.vocabulary_parallel = false;
  const auto plain = test::plan_of(of);
  const auto largest = [](const RankPlan& rank) {
    Bytes bytes{0};
    for (const auto& action : rank.actions) {
      for (const auto& taken : action.takes) {
        if (taken.buffer.kind == BufferKind::logits) bytes = std::max(bytes, taken.bytes);
      }
    }
    return bytes;
  };

  const Bytes whole = largest(plain.training.ranks[Rank{size_ - 1}]);
  for (const Rank rank : all<Rank>(size_)) {
    const Bytes part = largest(plan.training.ranks[rank]);
    // Beside the logits: hidden states and statistics of four rows.
    EXPECT_LE(part.value, whole.value / size_ + 4096) << rank.value();
    EXPECT_GE(part.value, whole.value / size_ - 4096) << rank.value();
  }
}

TEST_F(SharedVocabularyTest, NeedsATokenForEachRank) {
  auto of = shape(tiny_model(Family::llama, Tied::no));
  of.model.vocabulary = size_ - 1;
  if (size_ == 1) GTEST_SKIP() << "a vocabulary has a token";

  try {
    test::plan_of(of);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), testing::HasSubstr("each rank needs one at least"));
  }
}

}  // namespace
}  // namespace penstock
