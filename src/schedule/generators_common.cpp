// SPDX-License-Identifier: Apache-2.0
#include "schedule/generators_common.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/kinds.hpp"

namespace penstock {

namespace {

/// Forwards of all stages that one schedule may hold; more is a slip of the pen, and would only fill memory.
constexpr std::int64_t most_forwards = 10'000'000;

void check_positive(std::string_view what, std::int32_t value) {
  if (value < 1) fail(ExitCode::bad_input, "a schedule with {} {} was asked for; expected at least 1", value, what);
}

}  // namespace

void check_sizes(const GeneratorOptions& options) {
  check_positive("pipeline ranks", options.pipeline);
  check_positive("virtual stages", options.virtual_stages);
  check_positive("micro-batches", options.micro_batches);
  check_positive("slices", options.slices);
  check_positive("forward virtual stages", options.forward_virtual);
  check_positive("backward virtual stages", options.backward_virtual);
  // Step by step: the product of three 32-bit numbers can pass 64 bits.
  std::int64_t forwards = 1;
  for (const std::int32_t factor :
       {options.pipeline, options.virtual_stages, options.micro_batches, options.slices, options.forward_virtual}) {
    forwards *= factor;
    if (forwards <= most_forwards) continue;
    fail(ExitCode::bad_input,
         "pipeline {} x virtual stages {} x micro-batches {} x slices {} is more than {} forwards in one step; use "
         "fewer micro-batches or ranks",
         options.pipeline, std::int64_t{options.virtual_stages} * options.forward_virtual, options.micro_batches,
         options.slices, most_forwards);
  }
}

GeneratorOptions with_full_pipeline(GeneratorOptions options) {
  check_sizes(options);
  options.micro_batches = std::max(options.micro_batches, 2 * options.pipeline);
  check_sizes(options);
  return options;
}

void check_options(ScheduleKind kind, const GeneratorOptions& options) {
  check_sizes(options);
  std::vector<std::string> texts;
  for (const KindFault& fault : faults_of(kind, options)) texts.push_back(fault.text);
  if (!texts.empty()) fail(ExitCode::bad_input, "{}", fmt::join(texts, "; "));
}

Rank rank_of_stage(Placement placement, Stage stage, std::int32_t pipeline) {
  const std::int32_t place = stage.value() % pipeline;
  const bool ascends = placement == Placement::round_robin || stage.value() / pipeline % 2 == 0;
  return Rank{ascends ? place : pipeline - 1 - place};
}

Stage stage_of_chunk(Placement placement, Rank rank, std::int32_t chunk, std::int32_t pipeline) {
  const bool ascends = placement == Placement::round_robin || chunk % 2 == 0;
  return Stage{chunk * pipeline + (ascends ? rank.value() : pipeline - 1 - rank.value())};
}

Schedule empty_schedule(std::string name, const GeneratorOptions& options, Placement placement) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.shape = {options.pipeline, options.pipeline * options.virtual_stages, options.micro_batches, options.slices};
  for (const Stage stage : all<Stage>(schedule.shape.stages)) {
    schedule.rank_of.push_back(rank_of_stage(placement, stage, options.pipeline));
  }
  schedule.recompute = PerStage<bool>(schedule.shape.stages, false);
  schedule.actions = PerRank<std::vector<Action>>(options.pipeline);
  return schedule;
}

Action action_of(Op op, Stage stage, std::int32_t micro_batch, std::int32_t slice) {
  return {op, stage, MicroBatch{micro_batch}, Slice{slice}};
}

std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                std::size_t warm_up) {
  std::vector<Action> actions{forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up)};
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (warm_up + i < forwards.size()) actions.push_back(forwards[warm_up + i]);
    actions.push_back(backwards[i]);
  }
  return actions;
}

void erase_from(std::vector<Action>& actions, std::int32_t micro_batches) {
  const auto is_beyond = [&](const Action& action) { return action.micro_batch.value() >= micro_batches; };
  actions.erase(std::remove_if(actions.begin(), actions.end(), is_beyond), actions.end());
}

void ChunkList::add(Entry entry) {
  std::int32_t& next = next_[{entry.op == Op::forward, entry.chunk}];
  if (next == micro_batches_) return;
  const Action action = action_of(entry.op, stage_of_chunk(placement_, rank_, entry.chunk, pipeline_), next++);
  actions_.push_back(action);
  if (entry.op == Op::backward_input) {
    weights_.push_back(action_of(Op::backward_weight, action.stage, action.micro_batch.value()));
  }
}

void ChunkList::add(std::int32_t times, std::initializer_list<Entry> entries) {
  for (std::int32_t i = 0; i < times; ++i) {
    for (const Entry& entry : entries) add(entry);
  }
}

void ChunkList::add_oldest_weight() {
  require(!weights_.empty(), "a generator asks for a weight gradient before its input gradient");
  actions_.push_back(weights_.front());
  weights_.pop_front();
}

}  // namespace penstock
