// SPDX-License-Identifier: Apache-2.0
// The wide searches behind doc/published_figures.md: build/benchmark_published_tables [70b|13b]
//
// 70b: Llama 70B, 4 sequences of 2,097,152 tokens on 256 H100. 13b: Llama 13B, 4096 tokens, on 64 RTX 4090.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "plan/published_requests.hpp"
#include "plan/report.hpp"
#include "schedule/semantics.hpp"

namespace penstock {
namespace {

using Kinds = std::vector<ScheduleKind>;

/// The busiest rank's seconds on a lane, as a share of the step.
double busiest_share(const PlannedLayout& layout, Lane lane) {
  const Priced priced = price(layout.run);
  Seconds most;
  for (const Rank rank : all<Rank>(priced.schedule.shape.ranks)) {
    Seconds sum;
    for (const Action& action : priced.schedule.actions[rank]) {
      if (lane_of(action.op) == lane) sum += priced.costs.price(priced.schedule, {rank, action});
    }
    most = std::max(most, sum);
  }
  return most.value / layout.step.value;
}

/// Prints the best rows, or why there are none.
std::optional<PlannedLayout> print_search(std::string_view title, const PlanRequest& request, std::int32_t rows) {
  const PlanResult result = search(request, rows);
  const std::string text = result.best.empty() ? no_fit_text(request, result, "") + "\n" : to_text(result);
  fmt::print("{}\n{}\n", title, text);
  std::fflush(stdout);
  if (result.best.empty()) return std::nullopt;
  return result.best.front();
}

// --- Llama 70B, 2048K tokens ---

PlanRequest wide_slimpipe(double attention) {
  PlanRequest request = long_context_request(HARDWARE_FOLDER, attention);
  request.search.kinds = {ScheduleKind::slimpipe};
  request.search.tensor = {1, 2, 4, 8};
  request.search.context = {1, 2, 4, 8, 16};
  request.search.pipeline = {2, 4, 8, 16, 32};
  request.search.slices = {16, 32, 64, 128, 256};
  request.search.recompute = {Recompute::none, Recompute::selective};
  request.search.offload_activations = {0, 0.5, 1};
  request.search.exchange = {Exchange::pairwise, Exchange::global};
  return request;
}

/// Classical schedules: context parallelism and every kind of recomputation.
PlanRequest wide_classical(double attention, const Kinds& kinds, const std::vector<std::int32_t>& pipelines) {
  PlanRequest request = long_context_request(HARDWARE_FOLDER, attention);
  request.search.kinds = kinds;
  request.search.tensor = {1, 2, 4, 8};
  request.search.context = {1, 2, 4, 8, 16, 32, 64};
  request.search.pipeline = pipelines;
  request.search.virtual_stages = {1, 2, 4, 5, 8, 10, 16, 20, 40};
  request.search.neighbours = {Neighbours::pipeline, Neighbours::replicas};
  return request;
}

void print_authors_layout(double attention) {
  PlanRequest request = authors_layout(long_context_request(HARDWARE_FOLDER, attention));
  request.search.exchange = {Exchange::none, Exchange::pairwise, Exchange::global};
  const auto best = print_search("the authors' layout", request, 3);
  if (best) {
    fmt::print("its busiest copy lanes: {:.1f} % of the step to the host, {:.1f} % back\n\n",
               100 * busiest_share(*best, Lane::to_host), 100 * busiest_share(*best, Lane::to_device));
  }
  request.base.cost.exposure.exchange = 1;
  print_search("the same with all of the exchange exposed", request, 3);
}

void print_long_context() {
  const std::vector<std::int32_t> pipelines{2, 4, 8, 16, 32};
  for (const double attention : {0.5, 0.6, 0.7}) {
    fmt::print("== Llama 70B, 2048K tokens, 256 x H100, attention at {:.0f} % of the peak ==\n", 100 * attention);
    print_search("slimpipe", wide_slimpipe(attention), 5);
    print_authors_layout(attention);
    PlanRequest request = wide_classical(attention, {ScheduleKind::one_f_one_b}, pipelines);
    print_search("1f1b", request, 2);
    request.search.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    print_search("1f1b that recomputes whole stages, not layer by layer", request, 2);
    print_search("interleaved", wide_classical(attention, {ScheduleKind::interleaved}, pipelines), 2);
    print_search("no pipeline", wide_classical(attention, {ScheduleKind::one_f_one_b}, {1}), 2);
  }
}

// --- Llama 13B on RTX 4090 ---

/// All layouts, for each kind the same.
PlanRequest wide_small_memory(std::int64_t global_batch, double exposed, double links) {
  PlanRequest request = small_memory_request(HARDWARE_FOLDER, global_batch);
  request.base.cost.exposure.context = exposed;
  for (LinkFigures* link : {&request.base.hardware.inside, &request.base.hardware.between}) {
    link->bandwidth.value = static_cast<std::int64_t>(links * static_cast<double>(link->bandwidth.value));
  }
  request.search.tensor = {1, 2, 4, 8};
  request.search.context = {1, 2, 4, 8};
  request.search.pipeline = {1, 2, 4, 8, 16, 32};
  request.search.virtual_stages = {1, 2, 3, 4, 5, 10};
  return request;
}

void print_small_memory_kinds() {
  fmt::print("== Llama 13B, 4096 tokens, 64 x RTX 4090, global batch 128 ==\n");
  PlanRequest request = wide_small_memory(128, 1, 1);
  for (const ScheduleKind kind : rivals_of_svpp) {
    request.search.kinds = {kind};
    print_search(deck_name(kind), request, 3);
  }
  request.search.kinds = {ScheduleKind::svpp};
  print_search("svpp, weight gradients with those of inputs", request, 3);
  request.search.weight_gradients = {WeightGradients::placed};
  print_search("svpp, weight gradients placed", request, 3);
  request.base.schedule.weight_grain = WeightGrain::product;
  print_search("svpp, single products of weight gradients placed", request, 3);
  request.base.schedule.weight_grain = WeightGrain::whole;
  request.search.kinds = {ScheduleKind::one_f_one_b, ScheduleKind::interleaved};
  print_search("1f1b and interleaved, weight gradients placed", request, 3);
  request.capacity = request.capacity - Bytes{std::int64_t{2} << 30};
  request.search.kinds = {ScheduleKind::svpp};
  print_search("svpp with 2 GiB less of each device", request, 1);
  request.search.weight_gradients = {};
  request.search.kinds = {rivals_of_svpp.begin(), rivals_of_svpp.end()};
  print_search("the others with 2 GiB less of each device", request, 1);
}

void print_ratio(std::int64_t global_batch, double exposed, double links) {
  PlanRequest request = wide_small_memory(global_batch, exposed, links);
  request.search.kinds = {rivals_of_svpp.begin(), rivals_of_svpp.end()};
  const PlanResult others = search(request, 1);
  request.search.kinds = {ScheduleKind::svpp};
  request.search.weight_gradients = {WeightGradients::whole, WeightGradients::placed};
  const PlanResult svpp = search(request, 1);
  if (others.best.empty() || svpp.best.empty()) return;
  const PlannedLayout& own = svpp.best.front();
  const PlannedLayout& other = others.best.front();
  fmt::print("| {} | {} | {} | {:.2f} s, {:.1f} %: {}, {}, {} | {:.2f} s: {}, {}, {} | {:.2f} |\n", links, exposed,
             global_batch, own.step.value, 100 * own.utilization, schedule_text(own.run), layout_text(own.run),
             memory_text(own.run), other.step.value, schedule_text(other.run), layout_text(other.run),
             memory_text(other.run), other.step.value / own.step.value);
  std::fflush(stdout);
}

void print_small_memory() {
  print_small_memory_kinds();
  fmt::print("| links | exposed | batch | svpp | best of the others | ratio |\n|---|---|---|---|---|---|\n");
  for (const double links : {0.5, 1.0, 2.0}) {
    for (const double exposed : {0.0, 0.5, 1.0}) {
      for (const std::int64_t batch : {32, 64, 128, 256}) print_ratio(batch, exposed, links);
    }
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const std::string_view which = argc > 1 ? argv[1] : "";
  if (which != "13b") penstock::print_long_context();
  if (which != "70b") penstock::print_small_memory();
}
