// SPDX-License-Identifier: Apache-2.0
#include "simulate/times.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "schedule/semantics.hpp"

namespace penstock {

namespace {

std::size_t slot(std::int32_t number) {
  return static_cast<std::size_t>(number);
}

/// Starts nodes in the order in which they become ready.
class Engine {
 public:
  Engine(const DependenceGraph& graph, const Prices& prices, const LinkUses& links)
      : graph_{graph}, prices_{prices}, links_{links}, waits_(slot(graph.size())) {
    times_.starts.resize(slot(graph.size()));
    times_.ends.resize(slot(graph.size()));
    for (std::int32_t node = 0; node < graph.size(); ++node) {
      for (const Successor& successor : graph.successors(node)) ++waits_[slot(successor.node)];
    }
  }

  std::optional<ActionTimes> run() {
    const std::int32_t done = links_ ? run_in_time() : run_in_any_order();
    if (done < graph_.size()) return std::nullopt;
    return std::move(times_);
  }

 private:
  struct Ready {
    Seconds at;
    std::int32_t node;
    /// Of nodes that are ready at one time the earlier in the lists goes first.
    bool operator>(const Ready& other) const { return at != other.at ? at > other.at : node > other.node; }
  };

  /// Without shared links nothing depends on which of two ready nodes starts first.
  std::int32_t run_in_any_order() {
    std::vector<std::int32_t> ready;
    ready.reserve(slot(graph_.size()));
    for (std::int32_t node = 0; node < graph_.size(); ++node) {
      if (waits_[slot(node)] == 0) ready.push_back(node);
    }
    std::size_t done = 0;
    for (; done < ready.size(); ++done) {
      finish(ready[done], [&](std::int32_t next) { ready.push_back(next); });
    }
    return static_cast<std::int32_t>(done);
  }

  std::int32_t run_in_time() {
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (std::int32_t node = 0; node < graph_.size(); ++node) {
      if (waits_[slot(node)] == 0) ready.push({Seconds{0}, node});
    }
    std::int32_t done = 0;
    for (; !ready.empty(); ++done) {
      const std::int32_t node = ready.top().node;
      ready.pop();
      take_links(node);
      finish(node, [&](std::int32_t next) { ready.push({times_.starts[slot(next)], next}); });
    }
    return done;
  }

  /// Moves the start to when the links are free, and takes them.
  void take_links(std::int32_t node) {
    if (!graph_.is_node(node)) return;
    const LinkUse use = links_(graph_.action_of(node));
    Seconds& start = times_.starts[slot(node)];
    for (const std::int32_t link : use.links) {
      if (link == LinkUse::none) continue;
      if (slot(link) >= link_free_.size()) link_free_.resize(slot(link) + 1);
      start = std::max(start, link_free_[slot(link)]);
    }
    for (const std::int32_t link : use.links) {
      if (link != LinkUse::none) link_free_[slot(link)] = start + use.seconds;
    }
  }

  template <class MakeReady>
  void finish(std::int32_t node, const MakeReady& make_ready) {
    const Seconds duration = graph_.is_node(node) ? prices_(graph_.action_of(node)) : Seconds{0};
    const Seconds end = times_.starts[slot(node)] + duration;
    times_.ends[slot(node)] = end;
    for (const Successor& successor : graph_.successors(node)) {
      Seconds& start = times_.starts[slot(successor.node)];
      start = std::max(start, end);
      if (--waits_[slot(successor.node)] == 0) make_ready(successor.node);
    }
  }

  const DependenceGraph& graph_;
  const Prices& prices_;
  const LinkUses& links_;
  std::vector<std::int32_t> waits_;
  std::vector<Seconds> link_free_;
  ActionTimes times_;
};

/// Grows to cover what is given to it.
struct Extent {
  Seconds start{std::numeric_limits<double>::infinity()};
  Seconds end{-std::numeric_limits<double>::infinity()};
  void include(Seconds from, Seconds to) {
    start = std::min(start, from);
    end = std::max(end, to);
  }
  Seconds length() const { return end < start ? Seconds{0} : end - start; }
};

double idle_share(Seconds work, double available) {
  return available > 0 ? 1.0 - work.value / available : 0.0;
}

}  // namespace

std::optional<ActionTimes> action_times(const DependenceGraph& graph, const Prices& prices, const LinkUses& links) {
  return Engine{graph, prices, links}.run();
}

StepTimes step_times(const DependenceGraph& graph, const ActionTimes& times) {
  StepTimes result;
  Extent whole;
  Extent compute;
  std::vector<Extent> by_rank;
  for (std::int32_t node = 0; node < graph.size(); ++node) {
    if (!graph.is_node(node)) continue;
    const Seconds start = times.starts[slot(node)];
    const Seconds end = times.ends[slot(node)];
    whole.include(start, end);
    const auto rank = slot(graph.rank_of(node).value());
    if (rank >= by_rank.size()) by_rank.resize(rank + 1);
    if (lane_of(graph.action_of(node).action.op) != Lane::compute) continue;
    compute.include(start, end);
    by_rank[rank].include(start, end);
    result.computes.resize(by_rank.size());
    result.computes[rank] += end - start;
  }
  result.computes.resize(by_rank.size());
  Seconds work{0};
  for (const Seconds busy : result.computes) work += busy;
  Seconds longest{0};
  for (const Extent& extent : by_rank) longest = std::max(longest, extent.length());
  const auto ranks = static_cast<double>(by_rank.size());
  result.step = whole.length();
  result.exposed_optimizer = std::max(Seconds{0}, whole.end - compute.end);
  result.bubble_makespan = idle_share(work, ranks * compute.length().value);
  result.bubble_span = idle_share(work, ranks * longest.value);
  return result;
}

}  // namespace penstock
