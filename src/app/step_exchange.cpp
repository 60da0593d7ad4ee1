// SPDX-License-Identifier: Apache-2.0
#include "app/step_exchange.hpp"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

struct Header {
  double compute_busy;
  std::int64_t peak_device_bytes;
  std::int64_t losses;
  std::int64_t failure_code;
  std::int64_t failure_length;
};

Outcome add(StepReport& to, const std::string& packed) {
  Header header{};
  std::memcpy(&header, packed.data(), sizeof header);
  to.compute_busy += Seconds{header.compute_busy};
  to.peak_device_bytes = std::max(to.peak_device_bytes, Bytes{header.peak_device_bytes});
  const auto count = static_cast<std::size_t>(header.losses);
  const auto before = to.losses.size();
  to.losses.resize(before + count);
  if (count > 0) std::memcpy(to.losses.data() + before, packed.data() + sizeof header, count * sizeof(double));
  const std::size_t texts = sizeof header + count * sizeof(double);
  const auto failure_length = static_cast<std::size_t>(header.failure_length);
  const auto reason = packed.substr(texts + failure_length);
  if (!to.stop && !reason.empty()) to.stop = reason;
  return {static_cast<ExitCode>(header.failure_code), packed.substr(texts, failure_length)};
}

}  // namespace

std::string packed(const RankReport& report) {
  const Outcome& failure = report.since_last;
  const Header header{report.compute_busy.value, report.peak_device_bytes.value,
                      static_cast<std::int64_t>(report.losses.size()), static_cast<std::int64_t>(failure.code),
                      static_cast<std::int64_t>(failure.message.size())};
  std::string text(sizeof header + report.losses.size() * sizeof(double), '\0');
  std::memcpy(text.data(), &header, sizeof header);
  if (!report.losses.empty()) {
    std::memcpy(text.data() + sizeof header, report.losses.data(), report.losses.size() * sizeof(double));
  }
  return text + failure.message + report.stop.value_or("");
}

StepReport joined(const std::vector<std::string>& reports) {
  StepReport report;
  std::vector<Outcome> outcomes;
  outcomes.reserve(reports.size());
  for (const auto& text : reports) outcomes.push_back(add(report, text));
  refuse_failures(outcomes);
  return report;
}

StepReport exchange(const Communicator& world, const RankReport& own) {
  return joined(world.all_gather(packed(own)));
}

double ordered_sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace penstock
