// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/describe.hpp"
#include "schedule/attention_exchange.hpp"
#include "schedule/cutting.hpp"

namespace penstock {

/// What each is stands in the table of schedule/kinds.cpp, its closed form in schedule/generators.hpp
/// and schedule/sliced_generators.hpp.
enum class ScheduleKind : std::uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  breadth_first,
  zb_h1,
  zb_h2,
  zb_v,
  v_half,
  v_min,
  dualpipe_v,
  hanayo,
  terapipe,
  seq1f1b,
  seq1f1b_interleaved,
  svpp,
  slimpipe,
  mobius,
  spipe
};

constexpr auto enum_names(ScheduleKind) {
  return std::to_array<EnumName<ScheduleKind>>({{ScheduleKind::gpipe, "gpipe"},
                                                {ScheduleKind::one_f_one_b, "1f1b"},
                                                {ScheduleKind::interleaved, "interleaved"},
                                                {ScheduleKind::breadth_first, "breadth_first"},
                                                {ScheduleKind::zb_h1, "zb_h1"},
                                                {ScheduleKind::zb_h2, "zb_h2"},
                                                {ScheduleKind::zb_v, "zb_v"},
                                                {ScheduleKind::v_half, "v_half"},
                                                {ScheduleKind::v_min, "v_min"},
                                                {ScheduleKind::dualpipe_v, "dualpipe_v"},
                                                {ScheduleKind::hanayo, "hanayo"},
                                                {ScheduleKind::terapipe, "terapipe"},
                                                {ScheduleKind::seq1f1b, "seq1f1b"},
                                                {ScheduleKind::seq1f1b_interleaved, "seq1f1b_interleaved"},
                                                {ScheduleKind::svpp, "svpp"},
                                                {ScheduleKind::slimpipe, "slimpipe"},
                                                {ScheduleKind::mobius, "mobius"},
                                                {ScheduleKind::spipe, "spipe"}});
}

/// Where the gradients of weights stand.
enum class WeightGradients : std::uint8_t {
  whole,  ///< with those of inputs: B
  split,  ///< directly behind those of inputs: I, W
  placed  ///< where the rank would wait, by the prices of a model of cost, as far as memory allows
};

constexpr std::array<EnumName<WeightGradients>, 3> enum_names(WeightGradients) {
  return {{{WeightGradients::whole, "whole"}, {WeightGradients::split, "split"}, {WeightGradients::placed, "placed"}}};
}

/// What of a weight gradient is placed at once.
enum class WeightGrain : std::uint8_t {
  whole,   ///< all that one stage has for one (micro-batch, slice)
  product  ///< one matrix product
};

constexpr std::array<EnumName<WeightGrain>, 2> enum_names(WeightGrain) {
  return {{{WeightGrain::whole, "whole"}, {WeightGrain::product, "product"}}};
}

/// When a checkpoint goes to the rank of its backward stage, where the passes are decoupled.
enum class CheckpointMessages : std::uint8_t {
  asynchronous,  ///< as soon as the forward has made it
  synchronous    ///< a time step before its use (SPipe's baseline, methods 1.3)
};

constexpr std::array<EnumName<CheckpointMessages>, 2> enum_names(CheckpointMessages) {
  return {{{CheckpointMessages::asynchronous, "asynchronous"}, {CheckpointMessages::synchronous, "synchronous"}}};
}

/// Who says when a placed weight gradient runs.
enum class WeightQueue : std::uint8_t {
  fixed,   ///< the lists
  dynamic  ///< the lists say the latest place; it runs before that while its rank waits
};

constexpr std::array<EnumName<WeightQueue>, 2> enum_names(WeightQueue) {
  return {{{WeightQueue::fixed, "static"}, {WeightQueue::dynamic, "dynamic"}}};
}

/// The kinds with a few words on each: "gpipe: all forwards, then all backwards; 1f1b: ...".
std::string_view help_on_kinds();

/// The section `schedule` of a deck.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  std::int32_t virtual_stages = 1;              ///< stages of one rank
  std::int32_t slices = 1;                      ///< of one sequence
  Cutting cutting = Cutting::even;              ///< of sequences into slices
  std::optional<std::int32_t> forwards_first;   ///< svpp: forwards of the first rank before its first backward
  std::int32_t forward_virtual = 1;             ///< spipe: forward stages of one rank
  std::int32_t backward_virtual = 1;            ///< spipe: backward stages of one rank
  std::optional<std::int32_t> forward_stages;   ///< spipe: of all ranks, in place of forward_virtual
  std::optional<std::int32_t> backward_stages;  ///< spipe: of all ranks, in place of backward_virtual
  bool early_recompute = false;                 ///< mobius, spipe: R need not wait for the output's gradient
  CheckpointMessages checkpoint_messages = CheckpointMessages::asynchronous;  ///< spipe
  bool split_backward = false;  ///< as WeightGradients::split, where those are whole
  WeightGradients weight_gradients = WeightGradients::whole;
  WeightGrain weight_grain = WeightGrain::whole;  ///< of placed weight gradients
  WeightQueue weight_queue = WeightQueue::fixed;  ///< likewise
  Exchange exchange = Exchange::none;             ///< slimpipe
  std::optional<ExchangeGrain> exchange_grain;    ///< of what is shared
  bool vocabulary_parallel = false;               ///< slimpipe: all ranks share head, loss and embedding
  std::optional<std::string> file;                ///< a hand-written schedule in place of a kind

  /// SequenceCut::key_cost, where attending to a key costs the model `attention_cost`.
  double key_cost(double attention_cost) const { return cutting == Cutting::balanced ? attention_cost : 0; }
  bool splits_backward() const { return split_backward || weight_gradients != WeightGradients::whole; }
  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

template <class Visitor>
void describe(Visitor& visit, ScheduleOptions& options) {
  visit(
      "file", options.file,
      {.help = "a hand-written schedule: CSV, a row a rank, as PyTorch's pipelining writes it; takes the place of kind",
       .when_absent = "the schedule of kind"});
  visit("kind", options.kind, {.help = help_on_kinds(), .not_beside = "file"});
  visit("virtual", options.virtual_stages,
        {.help = "stages of one rank; which numbers a kind takes is in doc/schedules.md",
         .unit = "stages",
         .range = between(1, 1024)});
  visit("slices", options.slices,
        {.help = "parts into which each sequence is cut; which kinds take more than 1 is in "
                 "doc/schedules.md",
         .unit = "slices",
         .range = between(1, 65536)});
  visit(
      "cutting", options.cutting,
      {.help = "even: slices of equal length; balanced: of equal work, shorter ones behind, since their tokens attend "
               "to more keys"});
  visit("forwards_first", options.forwards_first,
        {.help = "svpp: forwards of the first rank before its first backward, from virtual x slices; fewer keep fewer "
                 "activations and wait longer",
         .unit = "slices of a stage",
         .range = at_least(1),
         .when_absent = "as many as keep every rank busy"});
  visit("forward_stages", options.forward_stages,
        {.help = "spipe: stages of the forward pass over all ranks, dealt to them in turn; need not be a multiple of "
                 "the ranks",
         .unit = "stages",
         .range = between(1, 100000),
         .when_absent = "pipeline x forward_virtual"});
  visit("backward_stages", options.backward_stages,
        {.help = "spipe: the same of the backward pass",
         .unit = "stages",
         .range = between(1, 100000),
         .when_absent = "pipeline x backward_virtual"});
  visit("forward_virtual", options.forward_virtual,
        {.help = "spipe: stages of one rank in the forward pass",
         .unit = "stages",
         .range = between(1, 1024),
         .not_beside = "forward_stages"});
  visit("backward_virtual", options.backward_virtual,
        {.help = "spipe: stages of one rank in the backward pass; three times forward_virtual makes all time steps "
                 "equally long",
         .unit = "stages",
         .range = between(1, 1024),
         .not_beside = "backward_stages"});
  visit(
      "early_recompute", options.early_recompute,
      {.help = "mobius, spipe: recompute a stage as soon as its input is there, in place of when its output's gradient "
               "is, as published"});
  visit(
      "checkpoint_messages", options.checkpoint_messages,
      {.help = "spipe: when the input of a backward stage goes to its rank; asynchronous: as soon as the forward pass "
               "has made it; synchronous: right before its use, as a baseline"});
  visit("split_backward", options.split_backward,
        {.help = "input and weight gradients as two actions, I and W, in place of B; the same as weight_gradients: "
                 "split, and "
                 "not beside other values of it"});
  visit("weight_gradients", options.weight_gradients,
        {.help =
             "whole: with those of inputs, B; split: directly behind them, I and W; placed: where the rank would wait, "
             "as far as memory allows (MEPipe)"});
  visit("weight_grain", options.weight_grain,
        {.help = "what weight_gradients: placed puts into a wait at once; whole: all that a stage has for a slice; "
                 "product: one matrix product after the other, so that shorter waits are filled too (MEPipe)"});
  visit("weight_queue", options.weight_queue,
        {.help = "what decides when those of weight_gradients: placed run; static: how long actions should take; "
                 "dynamic: when the rank does wait, at the latest when memory or the end of the step asks for it"});
  visit("exchange", options.exchange,
        {.help = "slimpipe: who attends to the keys of a slice; none: the rank of the slice; pairwise: the ranks with "
                 "the most and the fewest keys share theirs, and so on inwards; global: all ranks share all"});
  visit(
      "exchange_grain", options.exchange_grain,
      {.help = "what of a slice's keys and values exchange hands on at once; chunk: all; half: the first or the second "
               "half of its tokens, so that all ranks can be equal",
       .when_absent = "half with exchange: global, chunk with pairwise, as published"});
  visit("vocabulary_parallel", options.vocabulary_parallel,
        {.help = "slimpipe: each rank has its share of the vocabulary's head, loss and embedding; logits take the "
                 "ranks' part of the memory"});
}

}  // namespace penstock
