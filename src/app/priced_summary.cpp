// SPDX-License-Identifier: Apache-2.0
#include "app/priced_summary.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/counted.hpp"
namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json ranks_json(const std::vector<PricedRankSummary>& ranks) {
  Json list = Json::array();
  for (const auto& rank : ranks) {
    list.push_back({{"planned_device_bytes", rank.planned_device.value},
                    {"peak_device_bytes", rank.peak_device.value},
                    {"simulated_compute_seconds", rank.simulated_compute.value},
                    {"compute_seconds", rank.compute.value}});
  }
  return list;
}

double percent_above(Seconds measured, Seconds simulated) {
  return simulated.value > 0 ? 100 * (measured.value / simulated.value - 1) : 0;
}

}  // namespace

Seconds PricedSummary::fastest_step() const {
  return *std::min_element(steps.begin(), steps.end());
}

Seconds PricedSummary::mean_step() const {
  Seconds sum;
  for (const Seconds step : steps) sum += step;
  return Seconds{sum.value / static_cast<double>(steps.size())};
}

std::string to_json(const PricedSummary& summary) {
  Json json{{"version", summary.version},
            {"reason", summary.reason},
            {"exit_code", summary.exit_code},
            {"schedule", summary.schedule}};
  if (!summary.steps.empty()) {
    json["completed_steps"] = summary.steps.size();
    json["time_scale"] = summary.time_scale;
    json["simulated_step_seconds"] = summary.simulated_step.value;
    json["fastest_step_seconds"] = summary.fastest_step().value;
    json["mean_step_seconds"] = summary.mean_step().value;
    json["ranks"] = ranks_json(summary.ranks);
  }
  return json.dump(2) + "\n";
}

std::string to_text(const PricedSummary& summary) {
  auto text = fmt::format("\n{}: {} of schedule {} on the priced device\n", summary.reason,
                          counted(std::ssize(summary.steps), "step"), summary.schedule);
  text += fmt::format(
      "step: simulated {:.4f} s; measured {:.4f} s at best ({:+.2f} %), {:.4f} s on average ({:+.2f} %)\n\n",
      summary.simulated_step.value, summary.fastest_step().value,
      percent_above(summary.fastest_step(), summary.simulated_step), summary.mean_step().value,
      percent_above(summary.mean_step(), summary.simulated_step));
  text += fmt::format("{:<6}{:>16}{:>16}{:>20}{:>16}\n", "rank", "device planned", "device peak", "compute simulated",
                      "compute last");
  for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
    const auto& of = summary.ranks[rank];
    text += fmt::format("{:<6}{:>16}{:>16}{:>18.4f} s{:>14.4f} s\n", rank, to_text(of.planned_device),
                        to_text(of.peak_device), of.simulated_compute.value, of.compute.value);
  }
  text.pop_back();
  return text;
}

}  // namespace penstock
