// SPDX-License-Identifier: Apache-2.0
#include "app/summary.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/counted.hpp"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// A sample of bytes need not be whole characters: what is none becomes the replacement character.
std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json ending_json(const RunEnding& ending) {
  return {{"version", ending.version},
          {"reason", ending.reason},
          {"exit_code", ending.exit_code},
          {"first_step", ending.first_step},
          {"completed_steps", ending.completed_steps},
          {"tokens", ending.tokens}};
}

Json ranks_json(const std::vector<RankBytes>& ranks) {
  Json list = Json::array();
  for (const auto& rank : ranks) {
    list.push_back({{"planned_device_bytes", rank.planned_device.value},
                    {"peak_device_bytes", rank.peak_device.value},
                    {"planned_host_bytes", rank.planned_host.value},
                    {"resident_set_bytes", rank.resident_set.value}});
  }
  return list;
}

Json times_json(const std::array<TimeAccount::Row, activity_count>& rows) {
  Json times = Json::object();
  for (const auto& row : rows) {
    times[std::string{name_of(row.activity)}] = {
        {"minimum", row.minimum}, {"average", row.average}, {"maximum", row.maximum}};
  }
  return times;
}

std::string memory_text(const RunSummary& summary) {
  std::string text = fmt::format("{:<6}{:>16}{:>16}{:>16}{:>16}\n", "rank", "device planned", "device peak",
                                 "host planned", "resident");
  for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
    const auto& bytes = summary.ranks[rank];
    text += fmt::format("{:<6}{:>16}{:>16}{:>16}{:>16}\n", rank, to_text(bytes.planned_device),
                        to_text(bytes.peak_device), to_text(bytes.planned_host), to_text(bytes.resident_set));
  }
  return text;
}

std::string validation_text(const RunSummary& summary) {
  auto text = fmt::format("validation loss {:.4f} nats", *summary.validation_loss);
  if (summary.entropies) {
    text += fmt::format(": {} the order-1 conditional entropy {:.4f} (unigram entropy {:.4f}) of the validation text",
                        *summary.validation_loss < summary.entropies->conditional ? "below" : "not below",
                        summary.entropies->conditional, summary.entropies->unigram);
  }
  return text + "\n";
}

}  // namespace

std::string to_json(const RunEnding& ending) {
  return dumped(ending_json(ending));
}

std::string to_json(const RunSummary& summary) {
  auto json = ending_json(summary);
  json["seconds"] = summary.seconds.value;
  json["tokens_per_second"] = summary.tokens_per_second;
  json["training_loss"] = summary.training_loss;
  json["ranks"] = ranks_json(summary.ranks);
  json["seconds_over_ranks"] = times_json(summary.times);
  if (summary.validation_loss) json["validation_loss"] = *summary.validation_loss;
  if (summary.entropies) {
    json["validation_entropy"] = {{"unigram", summary.entropies->unigram},
                                  {"conditional", summary.entropies->conditional}};
  }
  if (summary.sample) json["sample"] = {{"prompt", summary.sample_prompt}, {"text", *summary.sample}};
  return dumped(json);
}

std::string to_text(const RunSummary& summary) {
  auto text = fmt::format("\n{}: {}, {}, {:.1f} s in steps, {:.0f} tokens/s, training loss {:.4f}\n", summary.reason,
                          counted(summary.completed_steps, "step"), counted(summary.tokens, "token"),
                          summary.seconds.value, summary.tokens_per_second, summary.training_loss);
  if (summary.validation_loss) text += validation_text(summary);
  text += "\n" + to_text(summary.times) + "\n\n" + memory_text(summary);
  if (summary.sample) text += fmt::format("\nsample:\n{}{}\n", summary.sample_prompt, *summary.sample);
  text.pop_back();
  return text;
}

}  // namespace penstock
