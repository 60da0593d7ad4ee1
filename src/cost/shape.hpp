// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/describe.hpp"
#include "base/index.hpp"
#include "model/spec.hpp"
#include "schedule/attention_exchange.hpp"
#include "schedule/cutting.hpp"
#include "schedule/partition.hpp"
#include "schedule/place.hpp"
#include "schedule/recompute.hpp"

namespace penstock {

/// The share of each kind of communication that nothing hides: it is added to the action that needs it. From 0 to 1.
struct Exposure {
  double tensor = 1;
  double context = 1;
  double expert = 1;
  double vocabulary = 1;
  double replicas = 1;
  double exchange = 0;  ///< SlimPipe posts these messages before the attention that hides them
  friend bool operator==(const Exposure&, const Exposure&) = default;
};

template <class Visitor>
void describe(Visitor& visit, Exposure& exposure) {
  constexpr KeyRange share = between(0, 1);
  visit("tensor", exposure.tensor, {.help = "of what the devices of parallel.tensor exchange", .range = share});
  visit("context", exposure.context, {.help = "of what the devices of parallel.context exchange", .range = share});
  visit("expert", exposure.expert, {.help = "of what the devices of parallel.expert exchange", .range = share});
  visit("vocabulary", exposure.vocabulary, {.help = "of what schedule.vocabulary_parallel moves", .range = share});
  visit("replicas", exposure.replicas,
        {.help = "of the sums of gradients over parallel.data, and of the parameters that go round there",
         .range = share});
  visit("exchange", exposure.exchange,
        {.help = "of what schedule.exchange moves; SlimPipe posts it before attention that hides it", .range = share});
}

/// All that prices and sizes depend on, beside the hardware and the order of the actions.
///
/// A rank of the pipeline is a group of tensor x context devices; all figures are those of one of its devices, the
/// residual stream being divided by tensor too (sequence parallelism).
struct CostShape {
  ModelSpec model;
  PerStage<LayerRange> forward_stages;
  PerStage<LayerRange> backward_stages;  ///< empty: those of the forward pass
  PerStage<Recompute> recompute;         ///< of the backward stages; empty: none

  std::int32_t sequence = 1;     ///< tokens
  std::int32_t micro_batch = 1;  ///< sequences
  std::int32_t slices = 1;
  double key_cost = 0;            ///< see SequenceCut
  std::int64_t slice_tokens = 0;  ///< of the slice that is looked at (of_length); 0: the mean of all

  std::int32_t pipeline = 1;  ///< ranks; those of the schedule
  std::int32_t tensor = 1;
  std::int32_t context = 1;
  std::int32_t expert = 1;  ///< devices that share the experts of a layer, of the context x data that else hold copies
  std::int32_t data = 1;    ///< replicas of the pipeline
  Neighbours neighbours = Neighbours::pipeline;

  Exchange exchange = Exchange::none;
  std::optional<ExchangeGrain> exchange_grain;
  bool vocabulary_parallel = false;  ///< head, loss and embedding are shared by all ranks, slice by slice
  double offload_ratio = 0;          ///< share of the activations that OFFLOAD_A moves
  /// Of the optimizer's states, where its step runs. Host: gradients go there, parameters come back.
  Place optimizer = Place::host;
  Precision gradients = Precision::fp32;  ///< in which weight gradients add up on the device and go to the host
  Exposure exposure;

  const PerStage<LayerRange>& backward() const { return backward_stages.empty() ? forward_stages : backward_stages; }
  Recompute recompute_of(Stage stage) const { return recompute.empty() ? Recompute::none : recompute[stage]; }
  /// Devices of one rank of the pipeline.
  std::int32_t devices() const { return tensor * context; }
  /// Devices that hold the same parameters (of experts fewer, by `expert`) and share their optimizer states, as
  /// Megatron-LM's distributed optimizer does over data x context parallelism.
  std::int32_t copies() const { return context * data; }
  /// Stages at each end of a pass that share the embedding, or the head; and the share that each has.
  std::int32_t vocabulary_sharers() const { return vocabulary_parallel ? pipeline : 1; }
  double vocabulary_share() const { return 1.0 / vocabulary_sharers(); }
  /// From a device of a rank to its counterpart of the next rank.
  std::int32_t rank_stride() const { return neighbours == Neighbours::replicas ? devices() * data : devices(); }
  SequenceCut cut() const { return {sequence, slices, key_cost}; }
  /// The same for slices of so many tokens of a sequence, as stages look at theirs.
  CostShape of_length(std::int64_t tokens) const;
  /// Tokens of a sequence in the slice that is looked at; and those of one (micro-batch, slice) on one device.
  double tokens_of_sequence() const;
  double tokens() const;
  friend bool operator==(const CostShape&, const CostShape&) = default;
};

/// Throws Error bad_input naming the first rule that the shape breaks, with the numbers.
void check(const CostShape& shape);

/// Whether a layer that keeps little else keeps its keys and values, for the slices behind.
bool keeps_keys_and_values(const CostShape& shape, Recompute recompute);

/// Bytes of one number of parameters and activations.
double storage_bytes(Precision precision);

}  // namespace penstock
