// SPDX-License-Identifier: Apache-2.0
#include "cost/prices.hpp"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cost/model_cost.hpp"
#include "cost/shapes.hpp"
#include "cost/stage_sizes.hpp"
#include "model/parameters.hpp"

namespace penstock {
namespace {

/// The round hardware's memory moves 2^62 bytes a second; no action here moves as much as 20 GB.
constexpr double unseen_traffic = 20e9 / 4.6e18;

/// One stage a rank; prices ask a schedule only where its stages are.
Schedule schedule_of(std::int32_t ranks) {
  Schedule schedule;
  schedule.shape.ranks = ranks;
  schedule.shape.stages = ranks;
  for (const Rank rank : all<Rank>(ranks)) schedule.rank_of.push_back(rank);
  return schedule;
}

double price(const CostModel& model, Op op, int stage, int slice = 0) {
  const Schedule schedule = schedule_of(model.shape().pipeline);
  return model.price(schedule, {Rank{stage}, {op, Stage{stage}, MicroBatch{0}, Slice{slice}}}).value;
}

TEST(UnitPrices, AreWholeSecondsForEachCommonBlock) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 2;
  const CostModel model{shape, unit_hardware()};

  EXPECT_EQ(price(model, Op::forward, 3, 1), 1);
  EXPECT_EQ(price(model, Op::recompute, 0), 1);
  EXPECT_EQ(price(model, Op::backward, 0, 1), 2);
  EXPECT_EQ(price(model, Op::backward_input, 2), 1);
  EXPECT_EQ(price(model, Op::backward_weight, 2), 1);
  for (const Op op : {Op::send_forward, Op::send_backward, Op::fetch_forward, Op::offload_gradients, Op::reduce,
                      Op::step, Op::validate, Op::offload_activations, Op::evict_forward}) {
    EXPECT_EQ(price(model, op, 1), 0) << name_of(op);
  }
}

// SPipe with P = 4, vF = 2, vB = 6: 8 forward stages of 6 layers, 24 backward stages of 2; a phase is 2 layers.
TEST(UnitPrices, OfDecoupledPassesCountPhases) {
  CostShape shape = shape_of(preset_spec(ModelPreset::spipe_10b), 8);
  shape.backward_stages = even_partition(48, 24).stages;
  const CostModel model{shape, unit_hardware()};

  EXPECT_EQ(common_layers(shape), 2);
  EXPECT_EQ(price(model, Op::forward, 0), 3);
  EXPECT_EQ(price(model, Op::recompute, 0), 1);
  EXPECT_EQ(price(model, Op::backward, 0), 2);
}

TEST(ComputePrices, AreFlopsByTheReachedShareOfThePeak) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 4;
  const CostModel model{shape, round_hardware()};
  const double products = 8 * layer_work(shape, WorkPart::forward).flops().value / 0.5e15;
  const double scores = 8 * attention_work(shape, 2.5, WorkPart::forward, true).flops.value;

  EXPECT_NEAR(price(model, Op::forward, 1, 2), products + scores / 0.25e15, unseen_traffic);
  EXPECT_NEAR(price(model, Op::recompute, 1, 2), products + scores / 0.25e15, unseen_traffic);
  EXPECT_NEAR(price(model, Op::backward_input, 1, 2), products + 2.5 * scores / 0.125e15, unseen_traffic);
  EXPECT_NEAR(price(model, Op::backward_weight, 1, 2), products, unseen_traffic);
  EXPECT_NEAR(price(model, Op::backward, 1, 2), 2 * products + 2.5 * scores / 0.125e15, unseen_traffic);
}

TEST(ComputePrices, OfTheLastStageHaveTheHead) {
  const CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const CostModel model{shape, round_hardware()};
  const double head = head_work(shape, WorkPart::forward, 1).flops().value / 0.5e15;

  EXPECT_NEAR(price(model, Op::forward, 3) - price(model, Op::forward, 2), head, unseen_traffic);
  EXPECT_NEAR(price(model, Op::backward_weight, 3) - price(model, Op::backward_weight, 2), head, unseen_traffic);
}

TEST(ComputePrices, WithVocabularyParallelismSpreadTheHead) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  HardwareOptions hardware = round_hardware();
  hardware.between.bandwidth = hardware.inside.bandwidth = {std::int64_t{1} << 62};
  hardware.between.latency = hardware.inside.latency = {0};
  const CostModel one{shape, hardware};

  shape.vocabulary_parallel = true;
  const CostModel all_ranks{shape, hardware};

  const double head = price(one, Op::forward, 3) - price(one, Op::forward, 2);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_NEAR(price(all_ranks, Op::forward, stage), price(one, Op::forward, 2) + head / 4, 1e-6 * head);
  }
}

TEST(ComputePrices, AddTheLaunchLatencyOnceAnAction) {
  HardwareOptions hardware = round_hardware();
  const CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const CostModel quick{shape, hardware};

  hardware.device.launch_latency = {0.25};
  const CostModel slow{shape, hardware};

  for (const Op op : {Op::forward, Op::recompute, Op::backward, Op::backward_input, Op::backward_weight}) {
    EXPECT_NEAR(price(slow, op, 1) - price(quick, op, 1), 0.25, 1e-12);
  }
}

TEST(ComputePrices, OfThinProductsAreThoseOfTheirBytes) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.sequence = 16;
  shape.slices = 16;  // one token: two FLOPs for each parameter of two bytes
  HardwareOptions hardware = round_hardware();
  hardware.device.bandwidth = {1'000'000'000'000};
  const CostModel model{shape, hardware};
  const double parameters = 8 * static_cast<double>(parameter_counts(shape.model).layer_matrices);

  // What one token moves beside the weights is below 1/1000 of them (4096 rows each).
  EXPECT_NEAR(price(model, Op::forward, 1) / (2 * parameters / 1e12), 1, 2e-3);
  EXPECT_NEAR(price(model, Op::backward_weight, 1) / (8 * parameters / 1e12), 1, 2e-3);
}

TEST(ComputePrices, OfSelectiveRecomputationAddGateAndUpToTheInputGradient) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const CostModel keeps{shape, round_hardware()};

  shape.recompute = PerStage<Recompute>{4, Recompute::selective};
  const CostModel makes_again{shape, round_hardware()};

  const double added = 8 * 2.0 * 4096 * 4096 * 2 * 11008 / 0.5e15;
  EXPECT_NEAR(price(makes_again, Op::backward_input, 1) - price(keeps, Op::backward_input, 1), added, unseen_traffic);
  EXPECT_EQ(price(makes_again, Op::backward_weight, 1), price(keeps, Op::backward_weight, 1));
}

TEST(ComputePrices, OfRecomputedAttentionInputsAddTheQueriesToTheInputGradient) {
  CostShape shape = shape_of(preset_spec(ModelPreset::slimpipe_70b), 4);
  const CostModel keeps{shape, round_hardware()};

  shape.recompute = PerStage<Recompute>{4, Recompute::attention};
  const CostModel makes_again{shape, round_hardware()};

  const double added = 20 * 2.0 * 4096 * 8192 * 8192 / 0.5e15;
  EXPECT_NEAR(price(makes_again, Op::backward_input, 1) - price(keeps, Op::backward_input, 1), added, unseen_traffic);
  EXPECT_EQ(price(makes_again, Op::backward_weight, 1), price(keeps, Op::backward_weight, 1));
}

TEST(ComputePrices, WithTheExchangeAreEqualInTheMiddleOfASequence) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 16;
  shape.exchange = Exchange::global;
  const CostModel model{shape, round_hardware()};

  const double slot = price(model, Op::forward, 0, 9);  // rank 1 works on slice 8 then

  EXPECT_NEAR(price(model, Op::forward, 1, 8), slot, 1e-12);
  EXPECT_NEAR(price(model, Op::forward, 2, 7), slot, 1e-12);
}

TEST(Wires, OfANodeAndBetweenNodesHaveTheirOwnFigures) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 16);
  const CostModel model{shape, round_hardware()};
  const Bytes megabyte{1'000'000};

  EXPECT_DOUBLE_EQ(model.wire_seconds(Rank{0}, Rank{7}, megabyte).value, 1e-6 + 1e-5);
  EXPECT_DOUBLE_EQ(model.wire_seconds(Rank{7}, Rank{8}, megabyte).value, 2e-6 + 1e-4);
  EXPECT_EQ(model.wire_seconds(Rank{7}, Rank{7}, megabyte).value, 0);
}

TEST(Wires, OfARankOfSeveralDevicesAreSharedByThem) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 16);
  shape.tensor = 2;
  const CostModel model{shape, round_hardware()};

  // Ranks 3 and 4 are on different nodes of 8 devices; two devices of a rank share one wire.
  EXPECT_DOUBLE_EQ(model.wire_seconds(Rank{3}, Rank{4}, Bytes{1'000'000}).value, 2e-6 + 2e-4);
}

TEST(Wires, AreNamedWhereRanksShareThem) {
  const CostModel model{shape_of(preset_spec(ModelPreset::llama2_7b), 16), round_hardware()};

  EXPECT_EQ(model.shared_resource(Rank{0}, Rank{1}), std::nullopt);
  EXPECT_EQ(model.shared_resource(Rank{4}, Rank{8}), model.shared_resource(Rank{7}, Rank{9}));
  EXPECT_NE(model.shared_resource(Rank{3}, Rank{8}), model.shared_resource(Rank{4}, Rank{8}));
  EXPECT_EQ(model.shared_copy(Rank{2}, Lane::to_device), model.shared_copy(Rank{3}, Lane::to_device));
  EXPECT_NE(model.shared_copy(Rank{1}, Lane::to_device), model.shared_copy(Rank{2}, Lane::to_device));
  EXPECT_EQ(model.shared_copy(Rank{2}, Lane::to_host), std::nullopt);
}

TEST(Wires, OfGroupsThatFillThemAreTheirOwn) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 16);
  shape.tensor = 4;
  const CostModel model{shape, round_hardware()};

  EXPECT_EQ(model.shared_resource(Rank{1}, Rank{2}), std::nullopt);
}

/// Of all slices of a stage in the middle, on hardware that reaches half of its peak in products and in attention.
std::vector<double> forward_prices(const CostShape& shape) {
  HardwareOptions hardware = round_hardware();
  hardware.attention.forward = 0.5;
  const CostModel model{shape, hardware};
  std::vector<double> prices;
  for (const Slice slice : all<Slice>(shape.slices)) prices.push_back(price(model, Op::forward, 1, slice.value()));
  return prices;
}

TEST(ComputePrices, OfSlicesOfEqualWorkDifferByATokensWorth) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.sequence = 131072;  // nine tenths of the work at its end is attention
  shape.slices = 8;
  const auto even = forward_prices(shape);
  ASSERT_GT(even.back(), 3 * even.front());
  shape.key_cost = attention_cost_per_key(shape.model);

  const auto balanced = forward_prices(shape);

  const double layer = 2 * 4096.0 * (4 * 4096 + 3 * 11008);  // FLOPs of a token beside attention
  const double of_last_token = 8 * layer * (1 + shape.key_cost * 131072) / 0.5e15;
  const double mean = std::accumulate(even.begin(), even.end(), 0.0) / 8;
  for (const double seconds : balanced) EXPECT_NEAR(seconds, mean, of_last_token + unseen_traffic);
}

TEST(ComputePrices, OfSlicesThatDoNotDivideTheSequenceAreThoseOfTheirTokens) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const double whole = forward_prices(shape).front();
  shape.slices = 3;  // of 1366, 1365 and 1365 tokens

  const auto prices = forward_prices(shape);

  EXPECT_NEAR(std::accumulate(prices.begin(), prices.end(), 0.0), whole, 3 * unseen_traffic);
  EXPECT_LT(prices[1], prices[2]);
}

TEST(CheckedShapes, ExchangeSlicesThatDifferByAToken) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 8;
  shape.exchange = Exchange::global;
  const CostModel equal{shape, round_hardware()};
  shape.sequence -= 3;

  const CostModel model{shape, round_hardware()};

  // A slice of one token less: less to do, by about that token's share.
  const double shorter = price(model, Op::forward, 1, 7) / price(equal, Op::forward, 1, 7);
  EXPECT_LT(shorter, 1);
  EXPECT_GT(shorter, 1 - 2.0 / 512);
}

TEST(CheckedShapes, ExchangeSlicesOfEqualLengthAlone) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 8;
  shape.exchange = Exchange::global;
  EXPECT_NO_THROW(check(shape));

  shape.key_cost = 1e-4;

  EXPECT_THROW(check(shape), Error);
}

TEST(MessagePrices, AreTheWireSecondsOfTheStream) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 4;
  const CostModel model{shape, round_hardware()};
  const double expected = 1e-6 + 1024.0 * 4096 * 2 / 1e11;

  EXPECT_DOUBLE_EQ(price(model, Op::send_forward, 1), expected);
  EXPECT_DOUBLE_EQ(price(model, Op::receive_forward, 2), expected);
  EXPECT_DOUBLE_EQ(price(model, Op::send_backward, 2), expected);
  EXPECT_DOUBLE_EQ(price(model, Op::receive_backward, 1), expected);
}

TEST(HostPrices, AreCopiesAndTheRateOfTheOptimizer) {
  const CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const CostModel model{shape, round_hardware()};
  const double parameters = 8 * static_cast<double>(parameter_counts(shape.model).layer);

  EXPECT_NEAR(price(model, Op::fetch_forward, 1), 3e-6 + 2 * parameters / 20e9, 1e-12);
  EXPECT_NEAR(price(model, Op::offload_gradients, 1), 4e-6 + 4 * parameters / 25e9, 1e-12);
  EXPECT_NEAR(price(model, Op::step, 1), parameters / 1e9, 1e-9);
  EXPECT_EQ(price(model, Op::reduce, 1), 0);
}

// Two nodes of two devices; one forward stage a rank, each fetched from the ranks of its two backward stages:
// rank 0's backward stages are 3 and 7, those of rank 3 are 0 and 4.
TEST(HostPrices, OfFetchesFromOtherNodesAreThoseOfTheNetwork) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.backward_stages = even_partition(32, 8).stages;
  HardwareOptions hardware = round_hardware();
  hardware.node.devices = 2;
  hardware.between.shared_by = 2;
  hardware.to_device.shared_by = 1;
  const CostModel model{shape, hardware};
  Schedule schedule = schedule_of(4);
  schedule.backward = BackwardStages{};
  for (const int rank : {3, 2, 1, 0, 3, 2, 1, 0}) schedule.backward->rank_of.push_back(Rank{rank});
  const auto fetch = [&](int stage) {
    return model.price(schedule, {Rank{stage}, {Op::fetch_forward, Stage{stage}, MicroBatch{0}, Slice{0}}}).value;
  };
  const double layer = 2 * static_cast<double>(parameter_counts(shape.model).layer);

  // Stage 1 is backward stages 2 and 3, of ranks 1 and 0; stage 2 is 4 and 5, of ranks 3 and 2: all on the own node.
  EXPECT_NEAR(fetch(1), 3e-6 + 8 * layer / 20e9, 1e-9);
  EXPECT_NEAR(fetch(2), 3e-6 + 8 * layer / 20e9, 1e-9);
  // Rank 0's stage is backward stages 0 and 1, of ranks 3 and 2: all from the other node, whose adapter two share.
  const double ends = 2.0 * 32000 * 4096;
  EXPECT_NEAR(fetch(0), 2e-6 + 2 * (8 * layer + ends) / 10e9, 1e-9);
}

TEST(HostPrices, OfReplicasSideBySideStayInsideTheirNode) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.data = 4;
  const double parameters = 8 * static_cast<double>(parameter_counts(shape.model).layer);
  const double bytes = 0.75 * 4 * parameters;

  shape.neighbours = Neighbours::replicas;
  const CostModel together{shape, round_hardware()};

  EXPECT_NEAR(price(together, Op::reduce, 1), 3 * 1e-6 + bytes / 100e9, 1e-9);
}

// Ranks of one device with their 4 replicas fill half a node, so ranks 1 and 2 are on different nodes, 0 and 1 on one.
TEST(MessagePrices, WithReplicasSideBySideShareAnAdapterWithThem) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.data = 4;
  shape.neighbours = Neighbours::replicas;
  const CostModel model{shape, round_hardware()};

  EXPECT_NEAR(model.wire_seconds(Rank{0}, Rank{1}, Bytes{1'000'000}).value, 1e-6 + 1e-5, 1e-12);
  EXPECT_NEAR(model.wire_seconds(Rank{1}, Rank{2}, Bytes{1'000'000}).value, 2e-6 + 4e-4, 1e-12);
}

// A ring over 16 neighbours leaves each of the two nodes once: it has both adapters for itself.
TEST(ComputePrices, OfContextParallelismAcrossNodesShareAllAdaptersOfANode) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 1);
  HardwareOptions hardware = round_hardware();
  const auto forward = [&] { return price(CostModel{shape, hardware}, Op::forward, 0); };
  shape.context = 16;
  const double exposed = forward();
  shape.exposure.context = 0;
  const double keys_and_values = 4096.0 / 16 * 15 * 2 * 4096 * 2;

  EXPECT_NEAR(exposed - forward(), 32 * (15 * 2e-6 + keys_and_values / 20e9), 1e-9);
}

// All of it but the last product, whose result nobody needs.
TEST(ComputePrices, OfLayersThatAreRecomputedHaveTheirForwardInTheBackward) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  const CostModel keeping{shape, round_hardware()};
  shape.recompute = PerStage<Recompute>(4, Recompute::layers);
  const CostModel recomputing{shape, round_hardware()};

  const double last_product = 8 * 2.0 * 4096 * 4096 * 11008 / 0.5e15;
  const double added = price(keeping, Op::forward, 1) - last_product;
  for (const Op op : {Op::backward, Op::backward_input}) {
    EXPECT_NEAR(price(recomputing, op, 1) - price(keeping, op, 1), added, unseen_traffic);
  }
  EXPECT_EQ(price(recomputing, Op::backward_weight, 1), price(keeping, Op::backward_weight, 1));
}

TEST(HostPrices, OfGradientsInBf16AreHalfThoseInFp32) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.gradients = Precision::bf16;
  const CostModel model{shape, round_hardware()};
  const double parameters = 8 * static_cast<double>(parameter_counts(shape.model).layer);

  EXPECT_NEAR(price(model, Op::offload_gradients, 1), 4e-6 + 2 * parameters / 25e9, 1e-12);
}

TEST(HostPrices, OfReplicasAreARingOfGradientsAndOneOfParameters) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.data = 4;
  const CostModel model{shape, round_hardware()};
  const double parameters = 8 * static_cast<double>(parameter_counts(shape.model).layer);

  // 16 devices on two nodes: three steps of 2 us, and 3/4 of the bytes, of four rings that each leave a node once,
  // over its two adapters.
  const double ring = 3 * 2e-6 + 0.75 * 4 * 4 * parameters / 2e10;
  EXPECT_NEAR(price(model, Op::reduce, 1), ring, 1e-9 * ring);
  EXPECT_NEAR(price(model, Op::step, 1), parameters / 4 / 1e9 + 3 * 2e-6 + 0.75 * 4 * 2 * parameters / 2e10, 1e-9);

  shape.exposure.replicas = 0;
  EXPECT_EQ(price(CostModel{shape, round_hardware()}, Op::reduce, 1), 0);
}

TEST(HostPrices, OfAnOptimizerOnTheDeviceCopyNothing) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.optimizer = Place::device;
  HardwareOptions hardware = round_hardware();
  hardware.device.bandwidth = {1'000'000'000'000};
  const CostModel model{shape, hardware};
  const double parameters = 8 * static_cast<double>(parameter_counts(shape.model).layer);

  EXPECT_EQ(price(model, Op::fetch_forward, 1), 0);
  EXPECT_EQ(price(model, Op::offload_gradients, 1), 0);
  EXPECT_NEAR(price(model, Op::step, 1), 30 * parameters / 1e12, 1e-12);
}

TEST(Collectives, OfTensorParallelismGatherAndScatterTheStreamTwice) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.tensor = 2;
  const CostModel exposed{shape, round_hardware()};

  shape.exposure.tensor = 0;
  const CostModel hidden{shape, round_hardware()};

  const double one = 1e-6 + 4096.0 * 4096 * 2 / 2 / 1e11;
  EXPECT_NEAR(price(exposed, Op::forward, 1) - price(hidden, Op::forward, 1), 8 * 4 * one, 1e-12);
  EXPECT_NEAR(price(exposed, Op::backward_weight, 1) - price(hidden, Op::backward_weight, 1), 8 * 2 * one, 1e-12);
}

// Llama 70B has 8 times as many queries as keys: keys and values are fewer bytes for the first 8 slices.
TEST(Collectives, OfContextParallelismMoveTheFewerBytes) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_70b), 4);
  shape.context = 2;
  shape.slices = 16;
  const CostModel exposed{shape, round_hardware()};
  shape.exposure.context = 0;
  const CostModel hidden{shape, round_hardware()};

  const auto seconds = [&](int slice) {
    return price(exposed, Op::forward, 1, slice) - price(hidden, Op::forward, 1, slice);
  };

  EXPECT_NEAR(seconds(0), 20 * (1e-6 + 128.0 * 2 * 1024 * 2 / 1e11), 1e-12);
  EXPECT_NEAR(seconds(3), 20 * (1e-6 + 128.0 * 2 * 1024 * 4 * 2 / 1e11), 1e-12);
  EXPECT_NEAR(seconds(15), 20 * (1e-6 + 128.0 * 2 * 8192 * 2 / 1e11), 1e-12);
}

TEST(CostModel, RefusesAShapeThatBreaksARule) {
  CostShape shape = shape_of(preset_spec(ModelPreset::llama2_7b), 4);
  shape.slices = 5000;

  EXPECT_THROW((CostModel{shape, unit_hardware()}), Error);
}

}  // namespace
}  // namespace penstock
