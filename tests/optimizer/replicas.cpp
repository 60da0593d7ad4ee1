// SPDX-License-Identifier: Apache-2.0
//
// The CPU stages over data-parallel ranks; run with 1, 2, 3 and 4 of them.
#include <algorithm>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "optimizer/norm.hpp"
#include "optimizer/reduce.hpp"
#include "optimizer/stages.hpp"
#include "optimizer/step.hpp"

namespace penstock {
namespace {

// Four chunks and small change; with up to four replicas every replica owns something, in messages of different
// lengths.
const std::vector<std::int64_t> sizes{3 * chunk_elements / 2 + 5, 3, chunk_elements + 77, 1, 640};

HostStage stage_of(const std::vector<Parameter>& model, const Communicator& world) {
  return HostStage{tests::shape_of(model, 0, model.size(), DType::bf16, world.size(), world.rank())};
}

/// Gradients of all replicas added in replica order, by one process.
HostStage serial_sum(const std::vector<Parameter>& model, std::int32_t replicas, std::uint64_t step) {
  HostStage sum{tests::shape_of(model, 0, model.size(), DType::bf16)};
  const HostStage term{tests::shape_of(model, 0, model.size(), DType::bf16)};
  tests::fill_gradients(sum, 100 * step);
  for (std::int32_t replica = 1; replica < replicas; ++replica) {
    tests::fill_gradients(term, 100 * step + static_cast<std::uint64_t>(replica));
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(model.size()); ++i) {
      const auto to = sum.gradient(i);
      const auto from = term.gradient(i);
      for (std::size_t j = 0; j < to.size(); ++j) to[j] += from[j];
    }
  }
  return sum;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(ReduceGradients, AddsInReplicaOrderToTheBitOfASerialSum) {
  const auto world = Communicator::world();
  const auto model = tests::parameters_of_sizes(sizes);
  const HostStage stage = stage_of(model, world);
  tests::fill_gradients(stage, 100 + static_cast<std::uint64_t>(world.rank()));
  ReduceStaging staging{world.size()};
  Workers workers{2};

  reduce_gradients(stage, world, staging, workers);

  const HostStage expected = serial_sum(model, world.size(), 1);
  EXPECT_FALSE(stage.state().empty());
  for (const auto& state : stage.state()) {
    EXPECT_TRUE(same_bits(stage.gradient(state.piece), expected.gradient(state.piece)));
  }
}

TEST(Training, OverReplicasGivesTheWeightsOfOneProcess) {
  const auto world = Communicator::world();
  const auto model = tests::parameters_of_sizes(sizes);
  Workers workers{1};
  HostStage stage = stage_of(model, world);
  tests::fill_masters(stage);
  HostStage alone{tests::shape_of(model, 0, model.size(), DType::bf16)};
  tests::fill_masters(alone);
  ReduceStaging staging{world.size()};

  for (std::int64_t t = 1; t <= 2; ++t) {
    const auto stream = static_cast<std::uint64_t>(t);
    tests::fill_gradients(stage, 100 * stream + static_cast<std::uint64_t>(world.rank()));
    reduce_gradients(stage, world, staging, workers);
    const auto [norm, reports] = global_norm(block_sums(stage, workers), model, world, std::string(stream, 'r'));
    EXPECT_EQ(reports, std::vector<std::string>(static_cast<std::size_t>(world.size()), std::string(stream, 'r')));
    step(stage, adamw_factors({}, 1e-2, t, static_cast<float>(1.0 / norm.norm)), workers);
    gather_working_copy(stage, world);

    const HostStage sum = serial_sum(model, world.size(), stream);
    std::copy(sum.gradients().begin(), sum.gradients().end(), alone.gradients().begin());
    const NormResult serial_norm = combine(block_sums(alone, workers), model);
    EXPECT_EQ(norm.norm, serial_norm.norm);
    step(alone, adamw_factors({}, 1e-2, t, static_cast<float>(1.0 / serial_norm.norm)), workers);
  }

  EXPECT_TRUE(std::equal(stage.working_copy().begin(), stage.working_copy().end(), alone.working_copy().begin()));
}

TEST(GatherWorkingCopy, CompletesTheInitialWeights) {
  const auto world = Communicator::world();
  const auto model = tests::parameters_of_sizes(sizes);
  Workers workers{1};
  HostStage stage = stage_of(model, world);
  tests::fill_masters(stage);
  stage.refresh_working_copy(workers);

  gather_working_copy(stage, world);

  HostStage alone{tests::shape_of(model, 0, model.size(), DType::bf16)};
  tests::fill_masters(alone);
  alone.refresh_working_copy(workers);
  EXPECT_TRUE(std::equal(stage.working_copy().begin(), stage.working_copy().end(), alone.working_copy().begin()));
}

TEST(GlobalNorm, OfStagesOnSeveralRanksIsThatOfOneRank) {
  const auto world = Communicator::world();
  const auto model = tests::parameters_of_sizes(sizes);
  Workers workers{1};
  // One parameter a rank, the rest on the last but one; the last rank of several has none, and enters all the same.
  const auto holders = static_cast<std::size_t>(std::max(1, world.size() - 1));
  const auto rank = static_cast<std::size_t>(world.rank());
  const std::size_t begin = std::min(rank, holders);
  const std::size_t end = rank + 1 < holders ? rank + 1 : model.size();
  const HostStage stage{tests::shape_of(model, rank < holders ? begin : model.size(), end, DType::bf16)};
  tests::fill_gradients(stage, 9);

  const NormResult result = global_norm(block_sums(stage, workers), model, world).norm;

  const HostStage alone{tests::shape_of(model, 0, model.size(), DType::bf16)};
  tests::fill_gradients(alone, 9);
  EXPECT_EQ(result.norm, combine(block_sums(alone, workers), model).norm);
  EXPECT_TRUE(result.finite);
}

TEST(GlobalNorm, TellsEveryRankTheTensorThatOneRankSaw) {
  const auto world = Communicator::world();
  const auto model = tests::parameters_of_sizes({10, 20, 30, 40});
  const auto rank = static_cast<std::size_t>(world.rank());
  const HostStage stage{tests::shape_of(model, rank, rank + 1, DType::bf16)};
  tests::fill_gradients(stage, 9);
  if (world.rank() == world.size() - 1) stage.gradient(0)[7] = std::numeric_limits<float>::infinity();

  Workers workers{1};
  const NormResult result = global_norm(block_sums(stage, workers), model, world).norm;

  EXPECT_FALSE(result.finite);
  EXPECT_EQ(result.first_bad_tensor, model[static_cast<std::size_t>(world.size() - 1)].name);
  EXPECT_EQ(result.fault, GradientFault::infinite);
  EXPECT_EQ(result.first_bad_rank, world.size() - 1);
}

TEST(AddInto, AddsTheHeadToTheEmbedding) {
  std::vector<float> embedding(100000, 1.5F);
  const std::vector<float> head(100000, 0.25F);
  Workers workers{2};

  add_into(embedding, head, workers);

  EXPECT_THAT(embedding, testing::Each(1.75F));
  EXPECT_THROW(add_into(embedding, std::span{head}.first(10), workers), Error);
}

TEST(ReduceStaging, IsBoundedAndHoldsWholeBlocks) {
  EXPECT_EQ(ReduceStaging::bytes(1), Bytes{0});
  EXPECT_EQ(ReduceStaging::bytes(2), Bytes{std::int64_t{4} << 20});
  for (std::int32_t replicas = 2; replicas <= 65; ++replicas) {
    EXPECT_LE(ReduceStaging::bytes(replicas).value, std::int64_t{16} << 20);
    EXPECT_EQ(ReduceStaging::message_elements(replicas) % norm_block_elements, 0);
  }
  EXPECT_EQ(ReduceStaging::message_elements(1000), norm_block_elements);
}

TEST(ReduceGradients, RefusesACommunicatorOfAnotherShape) {
  const auto model = tests::parameters_of_sizes({10});
  const HostStage stage{tests::shape_of(model, 0, 1, DType::bf16, 7, 6)};
  ReduceStaging staging{7};
  Workers workers{1};

  EXPECT_THROW(reduce_gradients(stage, Communicator::world(), staging, workers), Error);
  EXPECT_THROW(gather_working_copy(stage, Communicator::world()), Error);
}

}  // namespace
}  // namespace penstock
