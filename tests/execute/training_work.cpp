// SPDX-License-Identifier: Apache-2.0
// Runs on 1, 2, 3 and 4 ranks. What one rank gives is formed by every rank alone, and compared with what they give
// together.
#include "execute/training_work.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/outcome.hpp"
#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

using test::expect_same;
using test::Outcome;
using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;
using test::train;
using Poison = TrainingWork::Poison;

class TrainingWorkTest : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  int size_ = world_.size();
};

class OfEachModel : public TrainingWorkTest, public testing::WithParamInterface<ModelSpec> {
 protected:
  RunShape shape() const { return tiny_run(GetParam(), size_); }
  /// A rank alone, with the plain schedule.
  Outcome alone() const { return train(tiny_run(GetParam(), 1), Communicator::self()); }
};

TEST_P(OfEachModel, EverySchedulesStepsAreThoseOfOneRank) {
  const auto expected = alone();
  EXPECT_GT(expected.norms.front(), 0.25);  // it is clipped
  EXPECT_EQ(expected.losses.size(), 8U);

  for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    SCOPED_TRACE(enum_names(kind)[static_cast<std::size_t>(kind)].name);
    auto of = shape();
    of.schedule.kind = kind;
    of.schedule.virtual_stages = kind == ScheduleKind::interleaved ? 2 : 1;
    expect_same(train(of, world_), expected);
  }
}

TEST_P(OfEachModel, RecomputedAndSplitStepsAreThoseOfOneRank) {
  const auto expected = alone();

  auto of = shape();
  of.recompute = Recompute::full;
  expect_same(train(of, world_), expected);
  of.schedule.split_backward = true;
  expect_same(train(of, world_), expected);
}

TEST_P(OfEachModel, DelayedStepsOfTwoThreadsOnUnevenStagesAreThoseOfOneRank) {
  const auto expected = alone();

  auto of = shape();
  if (size_ > 1) {
    of.layers_per_stage = std::vector<std::int32_t>(static_cast<std::size_t>(size_), 1);
    of.layers_per_stage->back() = 9 - size_;
  }
  const DelayOptions delays{static_cast<std::uint64_t>(100 + world_.rank()), Seconds{0.002}};
  expect_same(train(of, world_, delays, 2), expected);
}

/// The kinds whose weight gradients have places of their own, behind the work of other stages, where they can run.
std::vector<ScheduleOptions> with_late_weight_gradients(std::int32_t ranks) {
  std::vector<ScheduleOptions> found;
  for (const KindEntry& entry : kind_table()) {
    if (entry.limits.places_weight_gradients || entry.limits.slices) continue;
    const ScheduleOptions options{.kind = entry.kind, .virtual_stages = entry.limits.least_virtual};
    if (faults_of(entry.kind, generator_options(options, ranks, 4)).empty()) found.push_back(options);
  }
  return found;
}

/// Parameters on the host: with the schedule of plain stages, Mobius, SPipe, whose passes are on different ranks, and
/// those that bring stages back for other work between the parts of a backward.
std::vector<RunShape> streamed(const RunShape& shape) {
  std::vector<RunShape> shapes;
  for (const std::int32_t resident : {1, 2}) {
    auto of = shape;
    of.stream_parameters = true;
    of.resident_stages = resident;
    shapes.push_back(of);
    of.schedule = {.kind = ScheduleKind::mobius, .virtual_stages = 2};
    shapes.push_back(of);
    of.schedule = {.kind = ScheduleKind::spipe, .forward_virtual = 1, .backward_virtual = 2};
    shapes.push_back(of);
    of.schedule.early_recompute = true;
    of.schedule.checkpoint_messages = CheckpointMessages::synchronous;
    shapes.push_back(of);
    for (const ScheduleOptions& kind : with_late_weight_gradients(shape.pipeline)) {
      of.schedule = kind;
      shapes.push_back(of);
    }
  }
  return shapes;
}

TEST_P(OfEachModel, StepsWithParametersFromTheHostAreThoseOfOneRank) {
  const auto expected = alone();

  for (const RunShape& of : streamed(shape())) {
    SCOPED_TRACE(fmt::format("{}, {} resident",
                             enum_names(of.schedule.kind)[static_cast<std::size_t>(of.schedule.kind)].name,
                             of.resident_stages));
    expect_same(train(of, world_), expected);
  }
}

TEST_P(OfEachModel, DelayedStepsWithDecoupledPassesAreThoseOfOneRank) {
  const auto expected = alone();

  auto of = shape();
  of.schedule = {.kind = ScheduleKind::spipe, .forward_virtual = 2, .backward_virtual = 2};
  of.schedule.forward_stages = 5;  // no multiple of the ranks, nor do its borders lie on those of the backward pass
  const DelayOptions delays{static_cast<std::uint64_t>(200 + world_.rank()), Seconds{0.002}};
  expect_same(train(of, world_, delays, 2), expected);
}

/// Slices of six tokens: 2, 2, 1, 1, or three of 2 where SlimPipe has three ranks.
class SlicesOfEachModel : public OfEachModel {
 protected:
  RunShape shape(ScheduleKind kind, std::int32_t virtual_stages = 1) const {
    auto of = tiny_run(GetParam(), size_);
    of.schedule = {.kind = kind, .virtual_stages = virtual_stages, .slices = slices()};
    return of;
  }
  std::int32_t slices() const { return size_ == 3 ? 3 : 4; }
  Outcome alone() const {
    auto of = tiny_run(GetParam(), 1);
    of.schedule = {.kind = ScheduleKind::seq1f1b, .slices = slices()};
    return train(of, Communicator::self());
  }
};

TEST_P(SlicesOfEachModel, GiveTheStepsOfOneRankInEverySchedule) {
  const auto expected = alone();
  EXPECT_EQ(expected.losses.size(), 2U * 4 * static_cast<std::size_t>(slices()));

  expect_same(train(shape(ScheduleKind::terapipe), world_), expected);
  expect_same(train(shape(ScheduleKind::seq1f1b), world_), expected);
  expect_same(train(shape(ScheduleKind::seq1f1b_interleaved, 2), world_), expected);
  expect_same(train(shape(ScheduleKind::svpp, 2), world_), expected);
  expect_same(train(shape(ScheduleKind::slimpipe), world_), expected);
  expect_same(train(shape(ScheduleKind::slimpipe, 2), world_), expected);
  auto few = shape(ScheduleKind::svpp);
  few.schedule.forwards_first = slices();
  expect_same(train(few, world_), expected);
}

TEST_P(SlicesOfEachModel, GiveTheSameStepsRecomputedSplitDelayedAndOnTwoThreads) {
  const auto expected = alone();

  auto of = shape(ScheduleKind::svpp, 2);
  of.schedule.split_backward = true;
  const DelayOptions delays{static_cast<std::uint64_t>(100 + world_.rank()), Seconds{0.002}};
  expect_same(train(of, world_, delays, 2), expected);
  of.recompute = Recompute::full;
  expect_same(train(of, world_), expected);
  of = shape(ScheduleKind::slimpipe);
  of.recompute = Recompute::full;
  expect_same(train(of, world_, delays), expected);
}

TEST_P(SlicesOfEachModel, OfEqualWorkGiveTheSameStepsInEverySchedule) {
  const auto balanced = [](RunShape of) {
    of.schedule.cutting = Cutting::balanced;
    of.model.hidden = 8;  // attention counts: slices of 2, 2, 1 and 1 tokens become others
    of.model.head_size = 32;
    of.model.ffn = 8;
    of.sequence = 24;
    of.model.positions = 24;
    return of;
  };
  auto one = tiny_run(GetParam(), 1);
  one.schedule = {.kind = ScheduleKind::seq1f1b, .slices = slices()};
  const RunPlan plan = test::plan_of(balanced(one));
  const StageShape& stage = plan.training.stages[Stage{0}];
  ASSERT_GT(stage.tokens_of(Slice{0}).count, stage.tokens_of(Slice{slices() - 1}).count + 1);
  const auto expected = train(balanced(one), Communicator::self());

  expect_same(train(balanced(shape(ScheduleKind::terapipe)), world_), expected);
  expect_same(train(balanced(shape(ScheduleKind::svpp, 2)), world_), expected);
  auto split = balanced(shape(ScheduleKind::slimpipe));
  split.schedule.split_backward = true;
  expect_same(train(split, world_), expected);
}

TEST_P(SlicesOfEachModel, GiveTheSameStepsWithParametersFromTheHost) {
  const auto expected = alone();

  for (const auto kind : {ScheduleKind::terapipe, ScheduleKind::seq1f1b_interleaved, ScheduleKind::svpp,
                          ScheduleKind::slimpipe, ScheduleKind::mobius}) {
    for (const auto recompute : {Recompute::none, Recompute::full}) {
      SCOPED_TRACE(fmt::format("{}, {}", enum_names(kind)[static_cast<std::size_t>(kind)].name,
                               enum_names(recompute)[static_cast<std::size_t>(recompute)].name));
      auto of = shape(kind, 2);
      of.stream_parameters = true;
      of.resident_stages = 1;
      of.recompute = recompute;
      expect_same(train(of, world_), expected);
    }
  }
}

TEST_P(SlicesOfEachModel, GiveTheSameDelayedStepsWhereAStageComesBackForTheSliceItHasRecomputed) {
  const auto expected = alone();

  auto of = shape(ScheduleKind::svpp, 2);
  of.stream_parameters = true;
  of.resident_stages = 1;
  of.recompute = Recompute::full;
  of.schedule.split_backward = true;
  std::int64_t numbered = 0;
  for (const auto& list : test::plan_of(of).training.schedule.actions) {
    numbered += std::count_if(list.begin(), list.end(), [](const Action& action) { return action.part != 0; });
  }
  ASSERT_TRUE(numbered > 0 || size_ == 1);  // a rank alone runs no forward between the backwards of a micro-batch
  const DelayOptions delays{static_cast<std::uint64_t>(300 + world_.rank()), Seconds{0.002}};
  expect_same(train(of, world_, delays, 2), expected);
}

class OffloadOfEachModel : public SlicesOfEachModel {
 protected:
  void expect_the_same(RunShape of, const Outcome& expected, DelayOptions delays = {}) {
    for (const double ratio : {0.4, 1.0}) {
      of.offload_activations = ratio;
      expect_same(train(of, world_, delays), expected);
    }
  }
};

TEST_P(OffloadOfEachModel, GivesTheStepsOfRunsThatKeepAll) {
  auto whole = tiny_run(GetParam(), size_);
  whole.schedule.kind = ScheduleKind::gpipe;
  expect_the_same(whole, OfEachModel::alone());
  whole.schedule.kind = ScheduleKind::one_f_one_b;
  expect_the_same(whole, OfEachModel::alone());

  const auto expected = alone();
  const DelayOptions delays{static_cast<std::uint64_t>(100 + world_.rank()), Seconds{0.002}};
  expect_the_same(shape(ScheduleKind::svpp, 2), expected, delays);
  auto split = shape(ScheduleKind::slimpipe);
  split.schedule.split_backward = true;
  expect_the_same(split, expected);
}

TEST_P(OffloadOfEachModel, TakesItToTheHostThatThePlanSays) {
  auto of = shape(ScheduleKind::slimpipe);
  of.offload_activations = 1;

  const RunPlan plan = test::plan_of(of);

  const auto offloadable = plan.training.bytes[Stage{0}][static_cast<std::size_t>(BufferKind::offloadable)];
  const Bytes on_host = plan.training.ranks[Rank{0}].host_peak;
  EXPECT_GT(on_host, offloadable * 2);
  EXPECT_EQ(on_host.value % offloadable.value, 0);
  EXPECT_EQ(plan.validation.ranks[Rank{0}].host_peak.value, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadOfEachModel,
                         testing::Values(tiny_model(Family::llama, Tied::yes, Precision::bf16),
                                         tiny_model(Family::gpt2, Tied::yes)),
                         [](const auto& of) {
                           return std::string{of.param.family == Family::llama ? "llama" : "gpt2"};
                         });

TEST_P(SlicesOfEachModel, GiveTheLossesOfWholeSequences) {
  const auto of_micro_batches = [](const std::vector<double>& losses, std::int32_t parts) {
    std::vector<double> sums(losses.size() / static_cast<std::size_t>(parts));
    for (std::size_t i = 0; i < losses.size(); ++i) sums[i / static_cast<std::size_t>(parts)] += losses[i];
    return sums;
  };

  const auto whole = OfEachModel::alone().losses;
  const auto sliced = of_micro_batches(alone().losses, slices());

  // Rounding of sums over keys, twice: before the first step, and through the step that the second follows.
  const double tolerance = GetParam().precision == Precision::bf16 ? 0x1p-7 : 1e-5;
  ASSERT_EQ(sliced.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(sliced[i], whole[i], tolerance * whole[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, SlicesOfEachModel,
                         testing::Values(tiny_model(Family::llama, Tied::yes, Precision::bf16),
                                         tiny_model(Family::gpt2, Tied::yes)),
                         [](const auto& of) {
                           return std::string{of.param.family == Family::llama ? "llama" : "gpt2"};
                         });

INSTANTIATE_TEST_SUITE_P(Models, OfEachModel,
                         testing::Values(tiny_model(Family::llama, Tied::no),
                                         tiny_model(Family::llama, Tied::yes, Precision::bf16),
                                         tiny_model(Family::gpt2, Tied::yes),
                                         tiny_model(Family::gpt2, Tied::no, Precision::bf16)),
                         [](const auto& of) {
                           return std::string{of.param.family == Family::llama ? "llama" : "gpt2"} +
                                  (of.param.tie_embeddings ? "_tied" : "_untied") +
                                  (of.param.precision == Precision::bf16 ? "_bf16" : "_fp32");
                         });

TEST_F(TrainingWorkTest, ReplicasGiveTheSameBitsWhateverTheirPipelines) {
  if (size_ % 2 != 0) GTEST_SKIP() << "two replicas need an even number of ranks";
  const auto model = tiny_model(Family::llama, Tied::yes);
  const auto pair = world_.split(world_.rank() / 2, world_.rank());

  const auto expected = train(tiny_run(model, 1, 2), pair);

  expect_same(train(tiny_run(model, size_ / 2, 2), world_), expected);
}

TEST_F(TrainingWorkTest, WithoutTheNormsWaitStepsAreThoseOfOneRank) {
  auto model = tiny_model(Family::gpt2, Tied::yes);
  auto of_one = tiny_run(model, 1);
  auto of_all = tiny_run(model, size_);
  of_one.steps_wait = StepsWait::for_reduction;
  of_all.steps_wait = StepsWait::for_reduction;

  expect_same(train(of_all, world_), train(of_one, Communicator::self()));
}

TEST_F(TrainingWorkTest, AStepChangesEveryParameter) {
  TinyTraining training{tiny_run(tiny_model(Family::gpt2, Tied::no), size_), world_};
  const auto before = training.parameters();

  training.step(1);

  for (const auto& [name, bytes] : training.parameters()) EXPECT_TRUE(bytes != before.at(name)) << name;
  EXPECT_EQ(training.rule.adam_steps(), 1);
}

TEST_F(TrainingWorkTest, ASkippedStepChangesNothingOnAnyRank) {
  TinyTraining training{tiny_run(tiny_model(Family::llama, Tied::yes), size_), world_, {}, 1, NonFinite::skip};
  training.step(1);
  const auto before = training.parameters();

  training.step(2, Poison::yes);

  EXPECT_FALSE(training.work.norm().finite);
  EXPECT_EQ(training.work.norm().first_bad_tensor, "embedding/token/weight");
  EXPECT_TRUE(training.work.update().skipped);
  EXPECT_EQ(training.rule.adam_steps(), 1);
  EXPECT_TRUE(training.parameters() == before);
  training.step(3);
  EXPECT_TRUE(training.work.norm().finite);
  EXPECT_EQ(training.rule.adam_steps(), 2);
  EXPECT_FALSE(training.parameters() == before);
}

TEST_F(TrainingWorkTest, AllRanksStopAtAGradientThatIsNotFinite) {
  TinyTraining training{tiny_run(tiny_model(Family::llama, Tied::no), size_), world_};

  try {
    training.step(1, Poison::yes);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::not_finite);
    EXPECT_THAT(error.what(), testing::HasSubstr("step 1: the gradient of embedding/token/weight on rank 0"));
  }
}

/// Steps some of which exceed the bound, and two of which are not finite.
struct RoughRun {
  Outcome outcome;
  std::vector<bool> skipped;
  std::int64_t adam_steps = 0;
};

RoughRun rough_run(const RunShape& shape, const Communicator& world, double clip, DelayOptions delays = {}) {
  TinyTraining training{shape, world, delays, 1, NonFinite::skip, clip};
  RoughRun run;
  for (int step = 1; step <= 7; ++step) {
    training.step(step, step == 3 || step == 6 ? Poison::yes : Poison::no);
    run.skipped.push_back(training.work.update().skipped);
    run.outcome.norms.push_back(run.skipped.back() ? -1 : training.work.norm().norm);
    for (const double loss : training.losses()) run.outcome.losses.push_back(loss);
  }
  run.outcome.parameters = training.parameters();
  run.adam_steps = training.rule.adam_steps();
  return run;
}

void expect_same(const RoughRun& actual, const RoughRun& expected) {
  expect_same(actual.outcome, expected.outcome);
  EXPECT_EQ(actual.skipped, expected.skipped);
  EXPECT_EQ(actual.adam_steps, expected.adam_steps);
}

/// A bound that some of the run's norms exceed and others do not.
double bound_within(const RunShape& shape) {
  auto norms = rough_run(shape, Communicator::self(), 1e9).outcome.norms;
  std::sort(norms.begin(), norms.end());
  const double bound = (norms[3] + norms[4]) / 2;  // two are -1, three below, two above
  EXPECT_GT(bound, norms[2]);
  EXPECT_LT(bound, norms[6]);
  return bound;
}

TEST_P(OfEachModel, SpeculativeStepsThatAreUndoneFromCopiesAreThoseThatWait) {
  const auto alone = tiny_run(GetParam(), 1);
  const double clip = bound_within(alone);
  const auto expected = rough_run(alone, Communicator::self(), clip);
  EXPECT_EQ(expected.adam_steps, 5);

  for (const auto kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    SCOPED_TRACE(enum_names(kind)[static_cast<std::size_t>(kind)].name);
    auto of = shape();
    of.steps_wait = StepsWait::speculative;
    of.schedule.kind = kind;
    of.schedule.virtual_stages = kind == ScheduleKind::interleaved ? 2 : 1;
    expect_same(rough_run(of, world_, clip), expected);
    const DelayOptions delays{static_cast<std::uint64_t>(7 + world_.rank()), Seconds{0.001}};
    expect_same(rough_run(of, world_, clip, delays), expected);
  }
  auto of = shape();
  of.steps_wait = StepsWait::speculative;
  of.schedule = {.kind = ScheduleKind::spipe, .forward_virtual = 1, .backward_virtual = 2};
  expect_same(rough_run(of, world_, clip), expected);
}

TEST_P(OfEachModel, SpeculativeStepsOfReplicasAreThoseThatWait) {
  if (size_ % 2 != 0) GTEST_SKIP() << "two replicas need an even number of ranks";
  auto of = tiny_run(GetParam(), size_ / 2, 2);
  const double clip = bound_within(tiny_run(GetParam(), 1));
  const auto expected = rough_run(of, world_, clip);

  of.steps_wait = StepsWait::speculative;
  expect_same(rough_run(of, world_, clip), expected);
}

TEST_P(OfEachModel, SpeculativeStepsThatAreUndoneByInversionAgreeToRounding) {
  auto of = shape();
  const double clip = bound_within(tiny_run(GetParam(), 1));
  const auto expected = rough_run(of, world_, clip);

  of.steps_wait = StepsWait::speculative;
  of.rollback = Rollback::inverse;
  const auto found = rough_run(of, world_, clip);

  EXPECT_EQ(found.skipped, expected.skipped);
  EXPECT_EQ(found.adam_steps, expected.adam_steps);
  // A step taken back leaves each master at most 4 x 2^-24 of its size off (optimizer/step): seven, at most, 2^-19. The
  // losses of this model are no steeper: d log(loss) / d log(weights) is below 1. In bf16 a weight on the border of two
  // stored values moves by one, 2^-8 of it.
  const double tolerance = GetParam().precision == Precision::bf16 ? 0x1p-8 : 0x1p-19;
  ASSERT_EQ(found.outcome.losses.size(), expected.outcome.losses.size());
  for (std::size_t i = 0; i < expected.outcome.losses.size(); ++i) {
    EXPECT_NEAR(found.outcome.losses[i], expected.outcome.losses[i], tolerance * expected.outcome.losses[i]) << i;
  }
}

TEST_F(TrainingWorkTest, AStepThatEndsTheRunIsUndoneFirst) {
  auto shape = tiny_run(tiny_model(Family::llama, Tied::yes), size_);
  shape.steps_wait = StepsWait::speculative;
  TinyTraining training{shape, world_};
  training.step(1);
  const auto before = training.parameters();

  EXPECT_THROW(training.step(2, Poison::yes), Error);

  EXPECT_TRUE(training.parameters() == before);
  EXPECT_EQ(training.rule.adam_steps(), 1);
}

/// Highest address handed out by each kind of schedule on a device of its own.
TEST_F(TrainingWorkTest, EachScheduleReachesItsPlannedPeakToTheByte) {
  auto shape = tiny_run(tiny_model(Family::llama, Tied::yes, Precision::bf16), size_);
  shape.schedule = {.kind = ScheduleKind::interleaved, .virtual_stages = 2};
  const auto plan = test::plan_of(shape);
  const Rank rank{world_.rank()};

  for (const auto* planned : {&plan.training, &plan.validation, &plan.generation}) {
    TinyTraining training{shape, world_};
    const auto result = planned == &plan.generation ? ComputeWork::Result::logits : ComputeWork::Result::losses;
    if (planned == &plan.training) {
      training.step(1);
    } else {
      const auto& own = planned == &plan.validation ? training.plan.validation : training.plan.generation;
      ComputeWork work{own, rank, training.state.kernels(), result};
      Executor executor{own.schedule, own.ranks[rank], training.state.resources(work)};
      test::upload(training.state, work, own, test::Batch{shape, 1});
      work.begin(1.0);
      executor.run(1, nullptr);
    }
    EXPECT_EQ(training.state.peak_device_bytes(), planned->ranks[rank].peak);
  }
}

TEST_F(TrainingWorkTest, AllSchedulesTogetherReachTheBytesOfTheRun) {
  TinyTraining training{tiny_run(tiny_model(Family::gpt2, Tied::yes), size_), world_};
  const auto& plan = training.plan;
  const Rank rank{world_.rank()};
  ComputeWork validation{plan.validation, rank, training.state.kernels(), ComputeWork::Result::losses};
  Executor validate{plan.validation.schedule, plan.validation.ranks[rank], training.state.resources(validation)};
  ComputeWork generation{plan.generation, rank, training.state.kernels(), ComputeWork::Result::logits};
  Executor generate{plan.generation.schedule, plan.generation.ranks[rank], training.state.resources(generation)};

  // A step between two evaluations: neither disturbs the other.
  test::upload(training.state, validation, plan.validation, test::Batch{plan.shape, 1});
  validation.begin(1.0);
  validate.run(1, nullptr);
  const auto losses = validation.losses();
  training.step(1);
  EXPECT_EQ(training.work.losses(), losses);
  test::upload(training.state, generation, plan.generation, test::Batch{plan.shape, 1});
  generation.begin(1.0);
  generate.run(1, nullptr);

  EXPECT_EQ(training.state.peak_device_bytes(), plan.planned_device_bytes(rank));
}

}  // namespace
}  // namespace penstock
