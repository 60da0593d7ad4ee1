// SPDX-License-Identifier: Apache-2.0
// Published figures beside what the simulator makes of them: build/benchmark_published [calibrate]
//
// `calibrate` fits the three constants of input/hardware/v100_spipe.yaml to its two calibration rows first, prints
// them, and goes on with them.
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "config/hardware_file.hpp"
#include "plan/published_runs.hpp"

namespace penstock::published {
namespace {

double percent(double predicted, double published) {
  return 100 * (predicted / published - 1);
}

StepSeconds calibration_run(const HardwareOptions& hardware, std::int32_t sequence) {
  return simulated(mobius_run(hardware, ModelPreset::spipe_19b, 4, sequence));
}

/// The constants of two device parts.
struct DeviceRates {
  double efficiency = 0;  ///< of products of all sizes
  double link = 0;        ///< bytes a second of a card's link, which copies and messages go through
};

HardwareOptions with_rates(HardwareOptions hardware, const DeviceRates& rates) {
  hardware.products.sizes.clear();
  hardware.products.efficiency = {rates.efficiency};
  const Bytes bandwidth{std::llround(rates.link)};
  for (LinkFigures* link : {&hardware.inside, &hardware.to_device, &hardware.to_host}) link->bandwidth = bandwidth;
  return hardware;
}

/// The two device parts less the published ones.
std::array<double, 2> misfit(const HardwareOptions& hardware, const DeviceRates& rates) {
  const HardwareOptions tried = with_rates(hardware, rates);
  return {calibration_run(tried, 1024).device_part - figure_9[2].mobius.device_part,
          calibration_run(tried, 2048).device_part - figure_9[3].mobius.device_part};
}

/// Half Newton steps in both rates of the device; then the optimizer rate from what is left of the elapsed seconds.
void calibrate(HardwareOptions& hardware) {
  DeviceRates rates{hardware.products.efficiency.back(), static_cast<double>(hardware.to_device.bandwidth.value)};
  constexpr DeviceRates difference{1e-3, 1e7};
  for (int i = 0; i < 30; ++i) {
    const auto here = misfit(hardware, rates);
    const auto by_efficiency = misfit(hardware, {rates.efficiency + difference.efficiency, rates.link});
    const auto by_link = misfit(hardware, {rates.efficiency, rates.link + difference.link});
    const double a = (by_efficiency[0] - here[0]) / difference.efficiency;
    const double b = (by_link[0] - here[0]) / difference.link;
    const double c = (by_efficiency[1] - here[1]) / difference.efficiency;
    const double d = (by_link[1] - here[1]) / difference.link;
    const double determinant = a * d - b * c;
    rates.efficiency -= 0.5 * (here[0] * d - here[1] * b) / determinant;
    rates.link -= 0.5 * (here[1] * a - here[0] * c) / determinant;
  }
  hardware = with_rates(hardware, rates);
  double ratio = 0;
  for (const SpipeRow& row : {figure_9[2], figure_9[3]}) {
    const StepSeconds run = calibration_run(hardware, row.sequence);
    ratio += 0.5 * (run.elapsed - run.device_part) / (row.mobius.elapsed - row.mobius.device_part);
  }
  hardware.node.optimizer_rate *= ratio;
  fmt::print(
      "calibrated: products.efficiency {:.3f}, bandwidth of a card's link {:.3g}, node.optimizer_rate {:.3g}\n\n",
      rates.efficiency, rates.link, hardware.node.optimizer_rate);
}

std::string cells(const StepSeconds& predicted, const StepSeconds& published) {
  return fmt::format("{:.2f} ({:.2f}) | {:.2f} ({:.2f}) | {:+.1f} % ({:+.1f} %)", predicted.elapsed,
                     predicted.device_part, published.elapsed, published.device_part,
                     percent(predicted.elapsed, published.elapsed),
                     percent(predicted.device_part, published.device_part));
}

/// The mean of the sizes of errors, and the worst.
struct Summary {
  double sum = 0;
  double worst = 0;
  int count = 0;
  void add(double error) {
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
    ++count;
  }
  std::string text() const { return fmt::format("mean {:.1f} %, worst {:.1f} %", sum / count, worst); }
};

void print_figure_9(const HardwareOptions& hardware) {
  Summary speed_up, elapsed, device_part;
  const auto count = [&](const StepSeconds& predicted, const StepSeconds& published) {
    elapsed.add(percent(predicted.elapsed, published.elapsed));
    device_part.add(percent(predicted.device_part, published.device_part));
  };
  fmt::print(
      "| model | tokens | Mobius: predicted | published | error | SPipe: predicted | published | error | speed-up: "
      "predicted | published | error |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const SpipeRow& row : figure_9) {
    const StepSeconds mobius = simulated(mobius_run(hardware, row.model, row.ranks, row.sequence));
    const StepSeconds spipe = simulated(spipe_run(hardware, row.model, row.ranks, row.sequence));
    const double predicted = mobius.elapsed / spipe.elapsed;
    fmt::print("| {} | {} | {} | {} | {:.2f} | {:.2f} | {:+.1f} % |\n", row.name, row.sequence,
               cells(mobius, row.mobius), cells(spipe, row.spipe), predicted, row.speed_up(),
               percent(predicted, row.speed_up()));
    count(spipe, row.spipe);
    if (row.is_calibration()) continue;
    count(mobius, row.mobius);
    speed_up.add(percent(predicted, row.speed_up()));
  }
  fmt::print("\nwithout the calibration rows: speed-up {}; elapsed {}; device part {}\n\n", speed_up.text(),
             elapsed.text(), device_part.text());
}

void print_figure_15(const HardwareOptions& hardware) {
  fmt::print("| bar | predicted | published | error |\n|---|---|---|---|\n");
  for (const AblationBar& bar : figure_15(hardware)) {
    fmt::print("| {} | {} |\n", bar.name, cells(simulated(bar.run), bar.published));
  }
}

void print_contexts(const HardwareOptions& hardware) {
  const Bytes room = fullest_rank(context_run(hardware, ScheduleKind::one_f_one_b, context_1f1b));
  fmt::print("\nreserve fitted to 1F1B: {}\n\n| schedule | predicted | published | error |\n|---|---|---|---|\n",
             to_text(hardware.device.memory - room));
  const auto row = [&](const char* name, ScheduleKind kind, std::int32_t published) {
    const std::int32_t predicted = longest_context(hardware, kind, room);
    fmt::print("| {} | {}K | {}K | {:+.1f} % |\n", name, predicted, published, percent(predicted, published));
  };
  row("1F1B", ScheduleKind::one_f_one_b, context_1f1b);
  row("interleaved, one layer a stage", ScheduleKind::interleaved, context_interleaved);
  row("SlimPipe, n=64 v=4", ScheduleKind::slimpipe, context_slimpipe);
}

}  // namespace
}  // namespace penstock::published

int main(int argument_count, char** arguments) try {
  using namespace penstock;
  HardwareOptions v100 = read_hardware(HARDWARE_FOLDER "/v100_spipe.yaml");
  if (argument_count > 1 && std::string_view{arguments[1]} == "calibrate") published::calibrate(v100);
  published::print_figure_9(v100);
  published::print_figure_15(v100);
  published::print_contexts(read_hardware(HARDWARE_FOLDER "/h100.yaml"));
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
