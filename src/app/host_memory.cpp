// SPDX-License-Identifier: Apache-2.0
#include "app/host_memory.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "app/fit_advice.hpp"
#include "base/available_memory.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "comm/agreement.hpp"
#include "comm/nodes.hpp"
#include "execute/host_stages.hpp"
#include "execute/rank_state.hpp"
#include "optimizer/reduce.hpp"

namespace penstock {
namespace {

struct Kind {
  Bytes PlannedHostBytes::*bytes;
  std::string_view name;
};

constexpr std::array<Kind, 8> kinds{{
    {&PlannedHostBytes::states, "masters and moments"},
    {&PlannedHostBytes::previous, "the same before the last step"},
    {&PlannedHostBytes::working_copies, "working copies"},
    {&PlannedHostBytes::gradients, "gradients"},
    {&PlannedHostBytes::staging, "gradients on their way"},
    {&PlannedHostBytes::activations, "offloaded activations"},
    {&PlannedHostBytes::snapshot, "snapshot of a checkpoint"},
    {&PlannedHostBytes::devices, "memory of host devices"},
}};

/// The gradient of a tied head that comes from another rank.
Bytes tied_staging(const RunPlan& plan, Rank rank) {
  const auto& schedule = plan.training.schedule;
  const auto& ranks = schedule.ranks(Pass::backward);
  const bool is_remote = !schedule.shares_vocabulary && ranks[Stage{0}] != ranks[schedule.last_stage(Pass::backward)];
  if (!plan.shape.model.tie_embeddings || !is_remote || rank != ranks[Stage{0}]) return Bytes{0};
  return Bytes{std::int64_t{plan.shape.model.vocabulary} * plan.shape.model.hidden * size_of(DType::f32)};
}

}  // namespace

PlannedHostBytes& PlannedHostBytes::operator+=(const PlannedHostBytes& other) {
  for (const Kind& kind : kinds) this->*kind.bytes += other.*kind.bytes;
  return *this;
}

PlannedHostBytes planned_host_bytes(const RunPlan& plan, std::int32_t world_rank) {
  PlannedHostBytes planned;
  const auto place = RankPlace::of(world_rank, plan.shape.pipeline);
  for (const auto& stage : host_stage_shapes(plan, place)) {
    const auto bytes = host_bytes(stage);
    planned.states += bytes.masters + bytes.moments;
    planned.previous += bytes.previous;
    planned.working_copies += bytes.working_copy;
    planned.gradients += bytes.gradients;
    planned.snapshot += bytes.masters + bytes.moments;
  }
  planned.staging = ReduceStaging::bytes(plan.shape.replicas) + tied_staging(plan, place.coordinate);
  planned.activations = plan.training.ranks[place.coordinate].host_peak;
  planned.devices = plan.planned_device_bytes(place.coordinate);
  return planned;
}

std::string host_memory_table(const PlannedHostBytes& bytes) {
  std::string text;
  for (const Kind& kind : kinds) {
    const Bytes taken = bytes.*kind.bytes;
    if (taken.value > 0) text += fmt::format("  {:<29} {:>10}\n", kind.name, to_text(taken));
  }
  return text;
}

Bytes node_capacity(const Deck& deck) {
  const Bytes total = total_memory();
  return deck.memory.host ? std::min(*deck.memory.host, total) : total;
}

void check_node(const PlannedHostBytes& of_node, std::int32_t ranks, Bytes capacity, const Advice& advice) {
  if (of_node.total() <= capacity) return;
  fail(ExitCode::does_not_fit,
       "a node with {} needs {} ({} bytes) of host memory, and has {} ({} bytes; memory.host, or what the machine "
       "gives). It is for:\n{}A run that is stopped early writes a checkpoint, whatever output.checkpoint_every "
       "says.\n{}Fewer ranks on each node need less of it.",
       counted(ranks, "rank"), to_text(of_node.total()), of_node.total().value, to_text(capacity), capacity.value,
       host_memory_table(of_node), advice ? advice() : "");
}

NodePlan largest_node(const RunPlan& plan, const Deck& deck) {
  const std::int32_t ranks = plan.shape.pipeline * plan.shape.replicas;
  const std::int32_t each = deck.parallel.ranks_per_node.value_or(ranks);
  NodePlan largest;
  for (std::int32_t first = 0; first < ranks; first += each) {
    NodePlan node{std::min(each, ranks - first), {}};
    for (std::int32_t rank = first; rank < first + node.ranks; ++rank) node.bytes += planned_host_bytes(plan, rank);
    if (node.bytes.total() > largest.bytes.total()) largest = node;
  }
  return largest;
}

void check_own_node(const RunPlan& plan, const Deck& deck, const std::string& deck_path, const Communicator& world) {
  const auto own = planned_host_bytes(plan, world.rank());
  const auto check = [&](const Communicator& node, Bytes capacity, const Advice& advice) {
    PlannedHostBytes of_node;
    for (const Kind& kind : kinds) of_node.*kind.bytes = Bytes{node.sum((own.*kind.bytes).value)};
    jointly(world, [&] { check_node(of_node, node.size(), capacity, advice); });
  };
  const Bytes capacity = node_capacity(deck);
  check(Nodes{world, deck.parallel.ranks_per_node}.own(), capacity, node_advice(deck, deck_path, capacity));
  // Nodes that one machine passes for have its memory together; what a plan says of one of them is not the machine's.
  if (deck.parallel.ranks_per_node) check(world.split_by_machine(), total_memory(), {});
}

}  // namespace penstock
