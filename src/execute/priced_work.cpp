// SPDX-License-Identifier: Apache-2.0
#include "execute/priced_work.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "device/priced/wait.hpp"
#include "schedule/semantics.hpp"

namespace penstock {

PricedWork::PricedWork(Parts parts)
    : parts_{std::move(parts)}, edges_{edges_between_ranks()}, partners_{partners_of_actions()} {
  require(partners_.empty() || parts_.meeting != nullptr, "rank {} exchanges attention, but meets nobody", parts_.rank);
}

std::vector<PricedWork::CpuEdge> PricedWork::edges_between_ranks() const {
  std::vector<CpuEdge> edges;
  const ScheduleIndex index{*parts_.schedule};
  for (const Rank rank : all<Rank>(parts_.schedule->shape.ranks)) {
    for (const Action& action : parts_.schedule->actions[rank]) {
      // VALIDATE needs what all ranks have done: a barrier says that.
      if (lane_of(action.op) != Lane::cpu || action.op == Op::validate) continue;
      for (const ActionOnRank& need : needs(index, {rank, action})) {
        const bool is_own = rank == parts_.rank || need.rank == parts_.rank;
        if (need.rank != rank && is_own) edges.push_back({need, {rank, action}});
      }
    }
  }
  return edges;
}

int PricedWork::tag_of(const CpuEdge& edge) const {
  return static_cast<int>(edge.before.action.op) * parts_.schedule->most_stages() + edge.before.action.stage.value();
}

std::map<Action, std::vector<Rank>> PricedWork::partners_of_actions() const {
  std::map<Action, std::vector<Rank>> partners;
  for (const auto& group : groups_of(*parts_.schedule)) {
    const auto own = std::find_if(group.begin(), group.end(),
                                  [this](const SlotMember& member) { return member.rank == parts_.rank; });
    if (own == group.end()) continue;
    for (const SlotMember& member : group) {
      if (member.rank != parts_.rank) partners[own->action].push_back(member.rank);
    }
  }
  return partners;
}

std::vector<Event> PricedWork::meet_partners(const Action& action, Queue& lane, std::vector<Event> after) {
  const auto found = partners_.find(action);
  if (found == partners_.end()) return after;
  return {lane.submit(std::move(after), [this, &partners = found->second] { parts_.meeting->wait_for(partners); })};
}

Seconds PricedWork::compute(const Action& action, const StageBuffers& /*buffers*/) {
  wait_until(now() + parts_.prices({parts_.rank, action}));
  if (parts_.late && parts_.late->action == action) wait_until(now() + parts_.late->seconds);
  return {};
}

void PricedWork::cpu(const Action& action) {
  const ActionOnRank node{parts_.rank, action};
  for (const CpuEdge& edge : edges_) {
    if (edge.after == node) parts_.pipeline->receive({}, edge.before.rank.value(), tag_of(edge));
  }
  if (action.op == Op::validate) parts_.pipeline->barrier();
  wait_until(now() + parts_.prices(node));
  for (const CpuEdge& edge : edges_) {
    if (edge.before == node) parts_.pipeline->send({}, edge.after.rank.value(), tag_of(edge));
  }
}

Event PricedWork::copy(const Action& action, const CopyPlace& place, std::vector<Event> after) {
  const ActionOnRank node{parts_.rank, action};
  const LinkUse use = parts_.link_uses ? parts_.link_uses(node) : LinkUse{};
  return place.queue->submit(std::move(after), [this, use, price = parts_.prices(node)] {
    for (const auto link : use.links) {
      if (link == LinkUse::none) continue;
      require(parts_.links != nullptr, "a copy takes link {}, but no links are shared", link);
      wait_until(parts_.links->take(link, use.seconds));
    }
    wait_until(now() + price);
  });
}

}  // namespace penstock
