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
};

std::string pack(const RankReport& report) {
  const Header header{report.compute_busy.value, report.peak_device_bytes.value,
                      static_cast<std::int64_t>(report.losses.size())};
  std::string packed(sizeof header + report.losses.size() * sizeof(double), '\0');
  std::memcpy(packed.data(), &header, sizeof header);
  if (!report.losses.empty()) {
    std::memcpy(packed.data() + sizeof header, report.losses.data(), report.losses.size() * sizeof(double));
  }
  return packed + report.stop.value_or("");
}

void add(StepReport& to, const std::string& packed) {
  Header header{};
  std::memcpy(&header, packed.data(), sizeof header);
  to.compute_busy += Seconds{header.compute_busy};
  to.peak_device_bytes = std::max(to.peak_device_bytes, Bytes{header.peak_device_bytes});
  const auto count = static_cast<std::size_t>(header.losses);
  const auto before = to.losses.size();
  to.losses.resize(before + count);
  if (count > 0) std::memcpy(to.losses.data() + before, packed.data() + sizeof header, count * sizeof(double));
  const auto reason = packed.substr(sizeof header + count * sizeof(double));
  if (!to.stop && !reason.empty()) to.stop = reason;
}

}  // namespace

StepReport exchange(const Communicator& world, const RankReport& own) {
  StepReport report;
  for (const auto& packed : world.all_gather(pack(own))) add(report, packed);
  return report;
}

double ordered_sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace penstock
