// SPDX-License-Identifier: Apache-2.0
#include "app/priced_rank.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "device/priced/priced_device.hpp"
#include "schedule/semantics.hpp"
#include "simulate/simulate.hpp"

namespace penstock {

PricedSchedule::PricedSchedule(Priced priced, double time_scale)
    : priced_{std::move(priced)},
      time_scale_{time_scale},
      unscaled_link_uses_{priced_.link_uses()},
      plans_{plan_ranks(priced_)} {
  add_wires_and_links();
}

Prices PricedSchedule::prices() const {
  return [this](const ActionOnRank& node) {
    return Seconds{time_scale_ * priced_.costs.price(priced_.schedule, node).value};
  };
}

LinkUses PricedSchedule::link_uses() const {
  if (!unscaled_link_uses_) return {};
  return [this](const ActionOnRank& node) {
    LinkUse use = unscaled_link_uses_(node);
    use.seconds.value *= time_scale_;
    return use;
  };
}

void PricedSchedule::add_wires_and_links() {
  const auto price_of = prices();
  const auto uses = link_uses();
  for (const Rank rank : all<Rank>(priced_.schedule.shape.ranks)) {
    for (const Action& action : priced_.schedule.actions[rank]) {
      const ActionOnRank node{rank, action};
      const LinkUse use = uses ? uses(node) : LinkUse{};
      for (const auto link : use.links) links_ = std::max(links_, link + 1);
      if (lane_of(action.op) != Lane::send) continue;
      WirePrice wire{price_of(node), {}};
      std::copy_if(use.links.begin(), use.links.end(), std::back_inserter(wire.links),
                   [](std::int32_t link) { return link != LinkUse::none; });
      const auto& known = wires_.try_emplace({rank, *peer_of(priced_.schedule, action)}, wire).first->second;
      require(known.seconds == wire.seconds, "messages of rank {} to one peer with prices {} s and {} s", rank,
              known.seconds.value, wire.seconds.value);
    }
  }
}

Timeline PricedSchedule::simulate(Rank rank, const std::optional<LateAction>& late, StepTimes& times) const {
  const Prices with_delay = [&, price_of = prices()](const ActionOnRank& node) {
    const bool is_late = late && node.rank == rank && node.action == late->action;
    return price_of(node) + (is_late ? late->seconds : Seconds{0});
  };
  return simulated_timeline(priced_, plans_, with_delay, link_uses(), times);
}

LateAction late_in_the_middle(const Schedule& schedule, Rank rank, Seconds seconds) {
  std::vector<Action> computes;
  for (const Action& action : schedule.actions[rank]) {
    const bool is_eviction = action.op == Op::evict_forward || action.op == Op::evict_backward;
    if (lane_of(action.op) == Lane::compute && !is_eviction) computes.push_back(action);
  }
  require(!computes.empty(), "rank {} computes nothing", rank);
  return {computes[computes.size() / 2], seconds};
}

namespace {

std::unique_ptr<SharedLinks> share_links(const PricedSchedule& priced, const Communicator& pipeline) {
  if (priced.links() == 0) return nullptr;
  return std::make_unique<SharedLinks>(pipeline, priced.links());
}

Arena arena_with_persistent(std::byte* base, const RankPlan& plan) {
  Arena arena{base, plan.peak};
  for (const auto& buffer : plan.persistent) {
    arena.take(buffer.offset, buffer.bytes, std::string{name_of(buffer.buffer.kind)});
  }
  return arena;
}

}  // namespace

PricedRank::PricedRank(const PricedSchedule& priced, const Communicator& pipeline, Bytes capacity, DelayOptions delays,
                       const std::optional<LateAction>& late)
    : plan_{&priced.plans()[Rank{pipeline.rank()}]},
      cpu_messages_{pipeline.duplicate()},
      device_{make_priced_device(capacity, delays)},
      base_{device_->reserve(plan_->peak)},
      arena_{arena_with_persistent(base_, *plan_)},
      links_{share_links(priced, pipeline)},
      transport_{make_priced_transport(
          make_mpi_transport(pipeline, delays, Bytes{1 << 30}, Looks::by_bells), pipeline.rank(),
          [&priced](int from, int to) { return priced.wire(Rank{from}, Rank{to}); }, *device_, links_.get())},
      meeting_{pipeline},
      lanes_{*device_},
      work_{{.schedule = &priced.schedule(),
             .rank = plan_->rank,
             .prices = priced.prices(),
             .link_uses = priced.link_uses(),
             .links = links_.get(),
             .meeting = &meeting_,
             .pipeline = &cpu_messages_,
             .late = late}},
      executor_{priced.schedule(), *plan_, resources(work_)} {}

ExecutorResources PricedRank::resources(StageWork& work) {
  return {&lanes_, device_.get(), &arena_, base_, transport_.get(), &work};
}

}  // namespace penstock
