// SPDX-License-Identifier: Apache-2.0
// Runs on one rank, under MPI, which RankState asks for.
#include "execute/compute_work.hpp"

#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;

TEST(PackedTokens, LieByMicroBatchInputsFirst) {
  const std::vector<std::int32_t> inputs{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> targets{11, 12, 13, 14, 15, 16};
  const auto shape = [](std::int64_t tokens) { return StageShape{.tokens = tokens}; };

  EXPECT_THAT(pack_tokens(inputs, targets, shape(2), {true, true}),
              ElementsAre(1, 2, 11, 12, 3, 4, 13, 14, 5, 6, 15, 16));
  EXPECT_THAT(pack_tokens(inputs, targets, shape(3), {true, false}), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(pack_tokens(inputs, targets, shape(3), {false, true}), ElementsAre(11, 12, 13, 14, 15, 16));
  EXPECT_THAT(pack_tokens(inputs, targets, shape(6), {false, false}), IsEmpty());
  EXPECT_THAT(pack_tokens({}, {}, shape(2), {true, true}), IsEmpty());
}

TEST(PackedTokens, LieBySliceSequenceAndToken) {
  const std::vector<std::int32_t> inputs{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> targets{11, 12, 13, 14, 15, 16};

  EXPECT_THAT(pack_tokens(inputs, targets, StageShape{.sequences = 2, .tokens = 3, .slices = 2}, {true, true}),
              ElementsAre(1, 2, 4, 5, 3, 6, 11, 12, 14, 15, 13, 16));
}

/// The message of the Error `internal` that making the work of a plan throws; empty if it does not.
std::string fault_of(const PlannedSchedule& planned, ComputeWork::Result result = ComputeWork::Result::losses) {
  Workers workers{1};
  const auto kernels = make_host_kernels(workers);
  try {
    const ComputeWork work{planned, Rank{0}, *kernels, result};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    return error.what();
  }
  return "";
}

TEST(ComputeWorkOfAPlan, RefusesEveryBufferThatIsTooSmall) {
  auto shape = tiny_run(tiny_model(Family::llama, Tied::no), 1);
  shape.schedule = {.kind = ScheduleKind::gpipe, .virtual_stages = 2, .split_backward = true};
  const auto plan = test::plan_of(shape).training;
  ASSERT_EQ(fault_of(plan), "");
  std::map<BufferKind, int> refused;
  const auto expect_refused = [&](const PlannedSchedule& wrong, const PlannedBuffer& buffer) {
    EXPECT_THAT(fault_of(wrong),
                HasSubstr(fmt::format("the plan gives {} of stage {} {} bytes", name_of(buffer.buffer.kind),
                                      buffer.buffer.stage, buffer.bytes.value)));
    ++refused[buffer.buffer.kind];
  };

  auto wrong = plan;
  auto& rank = wrong.ranks[Rank{0}];
  const auto shrink = [&](PlannedBuffer& buffer) {
    buffer.bytes = buffer.bytes - Bytes{buffer_alignment};
    expect_refused(wrong, buffer);
    buffer.bytes += Bytes{buffer_alignment};
  };
  for (auto& buffer : rank.persistent) shrink(buffer);
  for (auto& action : rank.actions) {
    for (auto& buffer : action.takes) shrink(buffer);
  }

  for (const auto kind :
       {BufferKind::parameters, BufferKind::gradients, BufferKind::tokens, BufferKind::workspace, BufferKind::input,
        BufferKind::activations, BufferKind::logits, BufferKind::output_gradient, BufferKind::weight_operands}) {
    EXPECT_GT(refused[kind], 0) << name_of(kind);
  }
}

TEST(ComputeWorkOfAPlan, WantsRoomForLogitsBehindTheWorkspace) {
  const auto plan = test::plan_of(tiny_run(tiny_model(Family::llama, Tied::no), 1));
  auto small = plan.generation;
  for (auto& buffer : small.ranks[Rank{0}].persistent) {
    if (buffer.buffer.kind == BufferKind::workspace) {
      buffer.bytes = small.bytes[Stage{0}][static_cast<std::size_t>(BufferKind::workspace)] - Bytes{1};
    }
  }

  EXPECT_EQ(fault_of(plan.generation, ComputeWork::Result::logits), "");
  EXPECT_THAT(fault_of(small, ComputeWork::Result::logits), HasSubstr("the plan gives workspace"));
}

/// A run on one rank, and the forward-only work on the same stages.
class ComputeWorkTest : public testing::Test {
 protected:
  static RunShape shape() {
    auto of = tiny_run(tiny_model(Family::gpt2, Tied::yes), 1);
    of.schedule = {.kind = ScheduleKind::gpipe, .virtual_stages = 2};
    return of;
  }
  static void run(TinyTraining& on, const PlannedSchedule& planned, ComputeWork& work) {
    Executor executor{planned.schedule, planned.ranks[Rank{0}], on.state.resources(work)};
    test::upload(on.state, work, planned, test::Batch{on.plan.shape, 1});
    work.begin(1.0);
    executor.run(1, nullptr);
  }
  Communicator self_ = Communicator::self();
  TinyTraining training_{shape(), self_};
};

TEST_F(ComputeWorkTest, EvaluatesTheLossesOfTraining) {
  ComputeWork work{training_.plan.validation, Rank{0}, training_.state.kernels(), ComputeWork::Result::losses};

  run(training_, training_.plan.validation, work);
  training_.step(1);

  EXPECT_EQ(work.losses().size(), 4U);
  EXPECT_THAT(work.losses(), testing::Each(testing::Gt(1.0)));
  EXPECT_EQ(work.losses(), training_.work.losses());
}

TEST_F(ComputeWorkTest, StartsEveryRunFromZero) {
  ComputeWork work{training_.plan.validation, Rank{0}, training_.state.kernels(), ComputeWork::Result::losses};
  run(training_, training_.plan.validation, work);
  ASSERT_NE(work.losses().front(), 0.0);

  work.begin(1.0);

  EXPECT_THAT(work.losses(), testing::Each(0.0));
}

/// The gradients of a step that updates nothing are those of the same step again.
TEST_F(ComputeWorkTest, StartsGradientsFromZeroInEveryRun) {
  TinyTraining training{shape(), self_, {}, 1, NonFinite::skip};
  const auto gradients = [&] {
    const auto bytes = training.state.stages()[Stage{1}]->gradients();
    return std::vector<std::byte>{bytes.begin(), bytes.end()};
  };

  training.step(1, TrainingWork::Poison::yes);  // poisons the first stage's gradients alone
  const auto first = gradients();
  training.step(1, TrainingWork::Poison::yes);

  EXPECT_TRUE(gradients() == first);
}

/// The loss of the first sequence, by hand from the logits of each of its positions.
double loss_of_logits(TinyTraining& of) {
  const std::size_t vocabulary = 19;
  const test::Batch batch{of.plan.shape, 1};
  ComputeWork work{of.plan.generation, Rank{0}, of.state.kernels(), ComputeWork::Result::logits};
  Executor executor{of.plan.generation.schedule, of.plan.generation.ranks[Rank{0}], of.state.resources(work)};
  test::upload(of.state, work, of.plan.generation, batch);
  std::vector<float> logits(vocabulary);
  double loss = 0;
  for (std::size_t row = 0; row < 6; ++row) {
    if (batch.targets[row] < 0) continue;
    work.want_logits_of(static_cast<std::int64_t>(row));
    executor.run(1, nullptr);
    of.state.read_workspace(generation_logits_offset(of.plan), std::as_writable_bytes(std::span{logits}));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    loss += std::log(sum) - double{logits[static_cast<std::size_t>(batch.targets[row])]};
  }
  return loss;
}

TEST_F(ComputeWorkTest, LeavesLogitsWhoseLossIsThatOfTheForward) {
  for (const std::int32_t slices : {1, 4}) {
    SCOPED_TRACE(slices);
    auto one_sequence = shape();
    one_sequence.micro_batch = 1;
    one_sequence.schedule = {.kind = ScheduleKind::svpp, .virtual_stages = 2, .slices = slices};
    TinyTraining training{one_sequence, self_};
    ComputeWork validation{training.plan.validation, Rank{0}, training.state.kernels(), ComputeWork::Result::losses};
    run(training, training.plan.validation, validation);

    const double loss = loss_of_logits(training);

    const auto first = validation.losses().begin();
    // Six fp32 losses of size 3 and their log-sum-exps of 19 terms.
    EXPECT_NEAR(std::accumulate(first, first + slices, 0.0), loss, 6 * 20 * 3 * 6e-8);
  }
}

TEST_F(ComputeWorkTest, EvaluatesTheLossesOfTrainingInItsSlices) {
  auto sliced = shape();
  sliced.schedule = {.kind = ScheduleKind::svpp, .virtual_stages = 2, .slices = 4};
  TinyTraining training{sliced, self_};
  ComputeWork work{training.plan.validation, Rank{0}, training.state.kernels(), ComputeWork::Result::losses};

  run(training, training.plan.validation, work);
  training.step(1);

  EXPECT_EQ(work.losses().size(), 4U * 4);
  EXPECT_EQ(work.losses(), training.work.losses());
}

TEST_F(ComputeWorkTest, EvaluatesInSlicesTheLossOfWholeSequences) {
  const auto loss = [&](std::int32_t slices) {
    auto of = shape();
    of.schedule = {.kind = ScheduleKind::svpp, .virtual_stages = 2, .slices = slices};
    TinyTraining training{of, self_};
    ComputeWork work{training.plan.validation, Rank{0}, training.state.kernels(), ComputeWork::Result::losses};
    run(training, training.plan.validation, work);
    return std::accumulate(work.losses().begin(), work.losses().end(), 0.0);
  };

  const double whole = loss(1);

  EXPECT_NEAR(loss(4), whole, 1e-6 * whole);
  EXPECT_NEAR(loss(6), whole, 1e-6 * whole);
}

TEST_F(ComputeWorkTest, RefusesHostStages) {
  ComputeWork work{training_.plan.validation, Rank{0}, training_.state.kernels(), ComputeWork::Result::losses};

  EXPECT_THROW(work.cpu({Op::step, Stage{0}, {}, {}}), Error);
  EXPECT_THROW(work.host_gradients(Stage{0}), Error);
  EXPECT_THROW(work.fetch({Op::fetch_forward, Stage{0}, {}, {}}, {}, {}), Error);
  EXPECT_THROW(work.compute({Op::validate, Stage{0}, {}, {}}, {}), Error);
  EXPECT_THROW(training_.work.cpu({Op::forward, Stage{0}, {}, {}}), Error);
}

}  // namespace
}  // namespace penstock
