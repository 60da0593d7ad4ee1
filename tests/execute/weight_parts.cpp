// SPDX-License-Identifier: Apache-2.0
// Runs on 1 and 2 ranks: training by a schedule file whose weight gradients are in parts.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "execute/tiny_run.hpp"
#include "execute/tiny_training.hpp"
#include "schedule/generators.hpp"
#include "schedule/passes.hpp"
#include "schedule/sliced_generators.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

using test::Tied;
using test::tiny_model;
using test::tiny_run;
using test::TinyTraining;

/// The training of `compute`, read from its text.
RunShape run_of(const Schedule& compute, Family family, Tied tied) {
  RunShape shape = tiny_run(tiny_model(family, tied), compute.shape.ranks);
  shape.schedule.file = "mine.csv";
  shape.schedule_csv = write_schedule_csv(compute);
  return shape;
}

/// I for B, and all Ws at the end, in parts: those of a stage part after part, the last first but for the part that
/// frees, which is last in every cell.
Schedule with_parts_apart(const Schedule& compute, std::uint8_t parts) {
  Schedule result = compute;
  result.weight_parts = PerStage<std::uint8_t>(compute.shape.stages, parts);
  for (auto& list : result.actions) {
    std::vector<Action> weights;
    for (Action& action : list) {
      if (action.op != Op::backward) continue;
      action.op = Op::backward_input;
      weights.push_back({Op::backward_weight, action.stage, action.micro_batch, action.slice});
    }
    for (std::int32_t turn = 1; turn <= parts; ++turn) {
      const std::int32_t part = turn == parts ? parts : parts - turn;
      for (Action& weight : weights) {
        weight.part = static_cast<std::uint8_t>(part);
        list.push_back(weight);
      }
    }
  }
  return result;
}

/// The parameters after two steps.
std::map<std::string, std::string> trained(const RunShape& shape, const Communicator& world) {
  TinyTraining training{shape, world};
  for (int step = 1; step <= 2; ++step) training.step(step);
  return training.parameters();
}

class WeightParts : public testing::Test {
 protected:
  Communicator world_ = Communicator::world();
  std::int32_t size_ = world_.size();
};

TEST_F(WeightParts, FarApartGiveTheParametersOfWholeBackwards) {
  const Schedule whole = one_f_one_b({.pipeline = size_, .micro_batches = 4});
  const Schedule sliced = svpp({.pipeline = size_, .virtual_stages = 2, .micro_batches = 4, .slices = 3});
  for (const Schedule& compute : {whole, sliced}) {
    for (const Family family : {Family::llama, Family::gpt2}) {
      for (const Tied tied : {Tied::no, Tied::yes}) {
        const auto expected = trained(run_of(compute, family, tied), world_);

        for (const std::uint8_t parts : {2, 5, 12}) {
          const auto actual = trained(run_of(with_parts_apart(compute, parts), family, tied), world_);

          EXPECT_TRUE(actual == expected) << compute.name << " in " << int{parts} << " parts";
        }
      }
    }
  }
}

TEST_F(WeightParts, MoreThanProductsAreRefusedWithBothNumbers) {
  // Each rank has 8 / size_ llama layers of seven products, the last the head's beside them.
  const Schedule compute = with_parts_apart(one_f_one_b({.pipeline = size_, .micro_batches = 4}), 200);

  try {
    test::plan_of(run_of(compute, Family::llama, Tied::no));
    FAIL() << "planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), testing::HasSubstr("mine.csv cuts the weight gradients of stage 0 into 200 parts"));
  }
}

}  // namespace
}  // namespace penstock
