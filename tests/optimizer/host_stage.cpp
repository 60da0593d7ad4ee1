// SPDX-License-Identifier: Apache-2.0
#include "optimizer/host_stage.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "optimizer/stages.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

TEST(HostBytes, AreTwelveForMastersAndMomentsTwoForTheCopyFourForGradients) {
  const auto model = tests::parameters_of_sizes({chunk_elements, 3 * chunk_elements});

  const HostBytes bytes = host_bytes(tests::shape_of(model, 0, 2, DType::bf16));

  EXPECT_EQ(bytes.masters.value, 4 * 4 * chunk_elements);
  EXPECT_EQ(bytes.moments.value, 8 * 4 * chunk_elements);
  EXPECT_EQ(bytes.working_copy.value, 2 * 4 * chunk_elements);
  EXPECT_EQ(bytes.gradients.value, 4 * 4 * chunk_elements);
  EXPECT_EQ(bytes.total().value, 18 * 4 * chunk_elements);
}

TEST(HostBytes, OfStateAreSharedOutOverReplicas) {
  const auto model = tests::parameters_of_sizes({chunk_elements, 3 * chunk_elements});

  const HostBytes bytes = host_bytes(tests::shape_of(model, 0, 2, DType::bf16, 4, 2));

  EXPECT_EQ(bytes.masters.value, 4 * chunk_elements);
  EXPECT_EQ(bytes.working_copy.value, 2 * 4 * chunk_elements);
}

TEST(HostStage, OfAShareStartsFromTheRowsThatItHas) {
  auto model = tests::parameters_of_sizes({12});
  model[0].rows = 3;
  model[0].columns = 4;
  Workers workers{1};
  HostStage whole{tests::shape_of(model, 0, 1, DType::f32)};
  auto shape = tests::shape_of(model, 0, 1, DType::f32);
  shape.parameters[0].parameter.rows = 2;
  shape.parameters[0].first = 4;
  HostStage share{shape};

  whole.initialize(5, workers);
  share.initialize(5, workers);

  const float* const expected = whole.state()[0].master + 4;
  EXPECT_THAT(std::vector<float>(share.state()[0].master, share.state()[0].master + 8),
              testing::ElementsAreArray(expected, 8));
}

TEST(HostStage, GivesEveryPieceMemoryOfItsOwn) {
  const auto model = tests::parameters_of_sizes({7, chunk_elements + 1, 65});
  const HostStage stage{tests::shape_of(model, 0, 3, DType::bf16)};

  std::set<std::pair<const float*, const float*>> ranges;
  for (const auto& state : stage.state()) {
    for (const float* start : {state.master, state.first_moment, state.second_moment}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(start) % 64, 0U);
      ranges.insert({start, start + state.piece.count});
    }
  }

  EXPECT_EQ(ranges.size(), 3 * 4U);
  const float* end = nullptr;
  for (const auto& [first, last] : ranges) {
    EXPECT_GE(first, end);
    end = last;
  }
  EXPECT_EQ(stage.bytes().masters.value % 256, 0);
}

TEST(HostStage, DrawsTheSameMastersWhateverTheShardingAndTheThreads) {
  const auto model = tests::parameters_of_sizes({chunk_elements + 3000, 50});
  HostStage whole{tests::shape_of(model, 0, 2, DType::f32)};
  Workers one{1};
  whole.initialize(11, one);
  whole.refresh_working_copy(one);

  for (std::int32_t replica = 0; replica < 2; ++replica) {
    HostStage part{tests::shape_of(model, 0, 2, DType::f32, 2, replica)};
    Workers two{2};
    part.initialize(11, two);
    part.refresh_working_copy(two);
    ASSERT_FALSE(part.state().empty());
    for (const auto& state : part.state()) {
      const auto expected = whole.working_copy(state.piece);
      const auto found = part.working_copy(state.piece);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
      EXPECT_EQ(state.first_moment[0], 0.0F);
      EXPECT_EQ(state.second_moment[state.piece.count - 1], 0.0F);
    }
  }
}

TEST(HostStage, GivesATiedCopyNoState) {
  auto model = tests::parameters_of_sizes({100, 200});
  model[0].role = ParameterRole::token_embedding;
  const std::vector<Parameter> last{model[1], model[0]};
  const std::vector<Bytes> offsets{Bytes{0}, Bytes{1024}};

  HostStageShape shape{.parameters = host_parameters(last, 1, offsets, offsets, false),
                       .working_bytes = Bytes{2048},
                       .gradient_bytes = Bytes{2048}};
  const HostStage stage{shape};

  ASSERT_EQ(stage.state().size(), 1U);
  EXPECT_EQ(stage.state()[0].piece, (ShardPiece{0, 0, 200}));
  EXPECT_EQ(shape.parameters[0].canonical, 1);
  EXPECT_EQ(shape.parameters[1].canonical, 0);
  EXPECT_EQ(stage.gradient(1).size(), 100U);
  EXPECT_EQ(stage.working_copy(1).data(), stage.working_copy().data() + 1024);
}

TEST(HostParameters, KeepTheMasterOfTheTableOnTheFirstStage) {
  auto model = tests::parameters_of_sizes({100, 200});
  model[0].role = ParameterRole::token_embedding;
  const std::vector<Bytes> offsets{Bytes{0}, Bytes{1024}, Bytes{4096}};  // a third: the table's second accumulator

  const auto entries = host_parameters(model, 0, offsets, offsets, true);

  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(entries[0].mastered && entries[1].mastered);
  EXPECT_EQ(entries[1].canonical, 1);
  EXPECT_EQ(entries[1].gradient_offset, Bytes{1024});
}

TEST(HostParameters, RefuseMissingOffsets) {
  const auto model = tests::parameters_of_sizes({100, 200});
  const std::vector<Bytes> one{Bytes{0}};

  EXPECT_THROW(host_parameters(model, 0, one, one, true), Error);
}

TEST(HostStage, RefusesAParameterThatReachesBeyondItsBuffer) {
  const auto model = tests::parameters_of_sizes({100, 200});
  auto shape = tests::shape_of(model, 0, 2, DType::bf16);
  shape.gradient_bytes = shape.gradient_bytes - Bytes{64};

  try {
    const HostStage stage{shape};
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    EXPECT_THAT(error.what(), HasSubstr("p1"));
  }
}

}  // namespace
}  // namespace penstock
