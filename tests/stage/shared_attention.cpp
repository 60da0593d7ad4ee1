// SPDX-License-Identifier: Apache-2.0
//
// Ranks in lockstep that share their attention: the loss and every gradient are those of ranks that share nothing.
#include "stage/shared_attention.hpp"

#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mailboxes.hpp"
#include "pipeline.hpp"
#include "schedule/sliced_generators.hpp"
#include "support/tensor_near.hpp"

namespace penstock::test {
namespace {

class RankMessages : public AttentionMessages {
 public:
  RankMessages(Mailboxes& boxes, Rank rank) : boxes_{boxes}, rank_{rank} {}
  void send(Rank to, std::span<const std::byte> data) override { boxes_.send(data, rank_, to); }
  void receive(Rank from, std::span<std::byte> data) override { awaited_[from].push_back(data); }
  void wait_for(Rank from) override {
    for (const auto data : std::exchange(awaited_[from], {})) boxes_.receive(data, from, rank_);
  }
  void wait_for_sends() override {}

 private:
  Mailboxes& boxes_;
  Rank rank_;
  std::map<Rank, std::vector<std::span<std::byte>>> awaited_;
};

struct SharingCase {
  std::string name;
  ModelSpec model;
  std::vector<std::int32_t> layers_per_stage;
  std::int32_t ranks = 2;
  std::int32_t slices = 4;
  ExchangeRule rule;
  DType storage = DType::f64;
  KernelKind kernels = KernelKind::reference;
};

// gtest prints parameters; the name says all.
void PrintTo(const SharingCase& value, std::ostream* stream) {
  *stream << value.name;
}

/// A micro-batch through slimpipe's slots: each slot's actions at one time, in a thread each.
class Ranks {
 public:
  Ranks(const SharingCase& of, const PipelineShape& shape)
      : schedule_{slimpipe({.pipeline = of.ranks,
                            .virtual_stages = static_cast<std::int32_t>(of.layers_per_stage.size()) / of.ranks,
                            .micro_batches = 1,
                            .slices = of.slices,
                            .exchange = of.rule})},
        lockstep_{schedule_},
        layers_{*std::min_element(of.layers_per_stage.begin(), of.layers_per_stage.end())} {
    for (std::int32_t rank = 0; rank < of.ranks; ++rank) kernels_.emplace_back(of.kernels);
    pipeline_ = std::make_unique<Pipeline>(with_limits(shape), *kernels_.front());
  }

  double run(Backward how) {
    how_ = how;
    pipeline_->zero_gradients();
    for (const LockstepSlot& slot : lockstep_.slots()) {
      std::vector<std::thread> threads;
      for (const SlotMember& member : slot.members) {
        threads.emplace_back([this, &slot, &member] { act(slot, member); });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_TRUE(boxes_.are_empty());
    return loss_;
  }
  Gradients gradients() const { return pipeline_->gradients(); }
  std::int64_t messages() const { return boxes_.sent(); }

 private:
  PipelineShape with_limits(PipelineShape shape) const {
    for (const Rank rank : schedule_.rank_of) shape.sharing.push_back(lockstep_.limits_of(rank));
    return shape;
  }

  void act(const LockstepSlot& slot, const SlotMember& member) {
    RankMessages messages{boxes_, member.rank};
    const AttentionPartners partners{shares_of(slot, member.rank), layers_, &messages};
    const auto stage = static_cast<std::size_t>(member.action.stage.value());
    StageBuffers buffers = pipeline_->buffers(stage, member.action.slice);
    if (!partners.shares.empty()) buffers.partners = &partners;
    const StageMath& math = pipeline_->math(stage);
    Kernels& kernels = *kernels_[static_cast<std::size_t>(member.rank.value())];
    if (member.action.op == Op::forward) {
      double loss = 0;
      math.forward(kernels, buffers, StageMath::Keep::activations, &loss);
      if (math.shape().last) loss_ += loss;  // of one thread, slices ascending
    } else if (how_ == Backward::whole) {
      math.backward(kernels, buffers, test_loss_scale);
    } else {
      math.backward_input(kernels, buffers, test_loss_scale);
      math.backward_weight(kernels, buffers);
    }
  }

  Schedule schedule_;
  Lockstep lockstep_;
  std::int64_t layers_;
  std::vector<KernelsUnderTest> kernels_;
  std::unique_ptr<Pipeline> pipeline_;
  Mailboxes boxes_;
  Backward how_ = Backward::whole;
  double loss_ = 0;
};

PipelineShape shape_of(const SharingCase& of, std::int32_t slices) {
  return {.model = of.model,
          .sequences = 3,
          .tokens = 7,
          .storage = of.storage,
          .layers_per_stage = of.layers_per_stage,
          .slices = slices};
}

class SharedAttention : public testing::TestWithParam<SharingCase> {
 protected:
  static void expect_those_of(Pipeline& alone, Ranks& ranks, Backward how, double loss_tolerance,
                              double gradient_tolerance) {
    const double loss = alone.run(how, test_loss_scale);

    EXPECT_NEAR(ranks.run(how), loss, loss_tolerance * loss);

    EXPECT_GT(ranks.messages(), 0);
    const Gradients expected = alone.gradients();
    for (const auto& [name, values] : ranks.gradients()) {
      if (name.ends_with("key/bias")) {
        // Zero but for rounding, where no rotation shows it to softmax: measured against its neighbour.
        const std::string query = name.substr(0, name.size() - 8) + "query/bias";
        EXPECT_LT(norm_of(values), gradient_tolerance * norm_of(expected.at(query))) << name;
        continue;
      }
      EXPECT_TENSOR_NEAR(values, expected.at(name), gradient_tolerance) << name;
    }
  }

  /// Compares with ranks that share nothing, of as many slices and of one.
  void expect_as_alone(double loss_tolerance, double gradient_tolerance) {
    const KernelsUnderTest kernels{GetParam().kernels};
    for (const std::int32_t slices : {GetParam().slices, 1}) {
      for (const Backward how : {Backward::whole, Backward::split}) {
        Pipeline alone{shape_of(GetParam(), slices), *kernels};
        Ranks ranks{GetParam(), shape_of(GetParam(), GetParam().slices)};
        expect_those_of(alone, ranks, how, loss_tolerance, gradient_tolerance);
      }
    }
    PipelineShape in_layers = shape_of(GetParam(), GetParam().slices);
    Pipeline alone{in_layers, *kernels};
    in_layers.recompute = Recompute::layers;
    Ranks ranks{GetParam(), in_layers};
    expect_those_of(alone, ranks, Backward::split, loss_tolerance, gradient_tolerance);
  }
};

std::vector<SharingCase> sharing_cases(DType storage, KernelKind kernels) {
  struct Layout {
    std::string name;
    std::int32_t ranks;
    std::int32_t slices;
    std::vector<std::int32_t> layers_per_stage;
  };
  // Seven tokens: slices of unequal length, and some of a single token, whose second half is empty.
  const std::vector<Layout> layouts{{"2_ranks", 2, 4, {1, 2}},
                                    {"2_ranks_of_2_stages", 2, 4, {1, 1, 1, 1}},
                                    {"3_ranks", 3, 6, {1, 1, 1}},
                                    {"4_ranks", 4, 4, {1, 1, 1, 1}}};
  const std::vector<std::pair<std::string, ExchangeRule>> rules{
      {"pairs", {Exchange::pairwise, ExchangeGrain::chunk}},
      {"pairs_in_halves", {Exchange::pairwise, ExchangeGrain::half}},
      {"all", {Exchange::global, ExchangeGrain::chunk}},
      {"all_in_halves", {Exchange::global, ExchangeGrain::half}}};
  std::vector<SharingCase> cases;
  for (ModelSpec model : {small_llama(), small_gpt2()}) {
    for (const Layout& layout : layouts) {
      model.layers = std::accumulate(layout.layers_per_stage.begin(), layout.layers_per_stage.end(), 0);
      for (const auto& [rule_name, rule] : rules) {
        // Two ranks of neighbouring slices differ by one chunk: in whole ones they share nothing within a sequence.
        if (layout.ranks == 2 && rule.grain == ExchangeGrain::chunk) continue;
        const char* family = model.family == Family::llama ? "llama" : "gpt2";
        cases.push_back({fmt::format("{}_{}_{}", family, layout.name, rule_name), model, layout.layers_per_stage,
                         layout.ranks, layout.slices, rule, storage, kernels});
      }
    }
  }
  return cases;
}

class SharedAttentionInDouble : public SharedAttention {};
TEST_P(SharedAttentionInDouble, GivesTheLossAndEveryGradientOfRanksThatShareNothing) {
  expect_as_alone(1e-12, 1e-12);
}
INSTANTIATE_TEST_SUITE_P(, SharedAttentionInDouble, testing::ValuesIn(sharing_cases(DType::f64, KernelKind::reference)),
                         [](const auto& one) { return one.param.name; });

class SharedAttentionOnTheHost : public SharedAttention {};
TEST_P(SharedAttentionOnTheHost, GivesTheLossAndEveryGradientOfRanksThatShareNothing) {
  expect_as_alone(1e-6, 1e-5);
}
INSTANTIATE_TEST_SUITE_P(, SharedAttentionOnTheHost, testing::ValuesIn(sharing_cases(DType::f32, KernelKind::host)),
                         [](const auto& one) { return one.param.name; });

class SharedAttentionInBits : public SharedAttention {};
TEST_P(SharedAttentionInBits, DoesNotDependOnTheRace) {
  Ranks first{GetParam(), shape_of(GetParam(), GetParam().slices)};
  const double loss = first.run(Backward::whole);
  const Gradients expected = first.gradients();

  for (int repeat = 0; repeat < 5; ++repeat) {
    Ranks again{GetParam(), shape_of(GetParam(), GetParam().slices)};
    EXPECT_EQ(again.run(repeat % 2 == 0 ? Backward::whole : Backward::split), loss);
    for (const auto& [name, values] : again.gradients()) EXPECT_EQ(values, expected.at(name)) << name;
  }
}
TEST_P(SharedAttentionInBits, DoesNotDependOnWhatIsFormedAgainBesideIt) {
  PipelineShape shape = shape_of(GetParam(), GetParam().slices);
  Ranks keeping{GetParam(), shape};
  const double loss = keeping.run(Backward::whole);
  const Gradients expected = keeping.gradients();

  for (const Recompute mode : {Recompute::attention, Recompute::selective}) {
    shape.recompute = mode;
    Ranks ranks{GetParam(), shape};

    EXPECT_EQ(ranks.run(Backward::split), loss) << deck_name(mode);
    for (const auto& [name, values] : ranks.gradients()) EXPECT_EQ(values, expected.at(name)) << name;
  }
}
INSTANTIATE_TEST_SUITE_P(, SharedAttentionInBits, testing::ValuesIn(sharing_cases(DType::bf16, KernelKind::host)),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace penstock::test
