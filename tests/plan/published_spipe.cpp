// SPDX-License-Identifier: Apache-2.0
//
// SPipe against Mobius on V100 (methods 1.6): doc/published_figures.md has the table that these tests assert.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/hardware_file.hpp"
#include "plan/published_runs.hpp"

namespace penstock::published {
namespace {

HardwareOptions hardware() {
  return read_hardware(HARDWARE_FOLDER "/v100_spipe.yaml");
}

double error_of(double predicted, double published) {
  return std::abs(predicted / published - 1);
}

/// Errors, and what they come to.
struct Errors {
  std::vector<double> all;
  double mean() const {
    double sum = 0;
    for (const double error : all) sum += error;
    return sum / static_cast<double>(all.size());
  }
  double worst() const { return *std::max_element(all.begin(), all.end()); }
};

struct Figure9Errors {
  Errors speed_up, elapsed, device_part;
};

/// Of all figures but the four that the hardware file is calibrated on.
Figure9Errors figure_9_errors() {
  Figure9Errors errors;
  for (const SpipeRow& row : figure_9) {
    const StepSeconds spipe = simulated(spipe_run(hardware(), row.model, row.ranks, row.sequence));
    errors.elapsed.all.push_back(error_of(spipe.elapsed, row.spipe.elapsed));
    errors.device_part.all.push_back(error_of(spipe.device_part, row.spipe.device_part));
    if (row.is_calibration()) continue;
    const StepSeconds mobius = simulated(mobius_run(hardware(), row.model, row.ranks, row.sequence));
    errors.elapsed.all.push_back(error_of(mobius.elapsed, row.mobius.elapsed));
    errors.device_part.all.push_back(error_of(mobius.device_part, row.mobius.device_part));
    errors.speed_up.all.push_back(error_of(mobius.elapsed / spipe.elapsed, row.speed_up()));
  }
  return errors;
}

TEST(PublishedSpipe, IsCalibratedOnTheTwoMobiusRowsOf19B) {
  for (const SpipeRow& row : figure_9) {
    if (!row.is_calibration()) continue;

    const StepSeconds mobius = simulated(mobius_run(hardware(), row.model, row.ranks, row.sequence));

    // Two constants for two device parts; one rate for two optimizer steps.
    EXPECT_LE(error_of(mobius.device_part, row.mobius.device_part), 0.01) << row.name << " " << row.sequence;
    EXPECT_LE(error_of(mobius.elapsed, row.mobius.elapsed), 0.01) << row.name << " " << row.sequence;
  }
}

TEST(PublishedSpipe, HasThePublishedSpeedUpsAndSecondsOfTheOtherRows) {
  const Figure9Errors errors = figure_9_errors();

  EXPECT_LE(errors.speed_up.mean(), 0.06);
  EXPECT_LE(errors.speed_up.worst(), 0.11);
  EXPECT_LE(errors.elapsed.mean(), 0.10);
  EXPECT_LE(errors.device_part.mean(), 0.10);
}

// Published: the bars fall from left to right but for one, decoupled passes, which lose 1.8 % against Mobius. Here the
// two are within 1 % of each other: what decoupling gains, synchronous checkpoints take back, and no more.
TEST(PublishedSpipe, HasTheBarsOfTheAblationInOrder) {
  const auto bars = figure_15(hardware());
  std::vector<double> elapsed;
  for (const AblationBar& bar : bars) elapsed.push_back(simulated(bar.run).elapsed);

  const auto& [blocking, mobius, decoupled, fine, checkpoints, optimizer] = bars;
  EXPECT_GT(elapsed[0], std::max(elapsed[1], elapsed[2])) << blocking.name;
  EXPECT_NEAR(elapsed[2] / elapsed[1], 1, 0.01) << mobius.name << ", " << decoupled.name;
  EXPECT_GT(std::min(elapsed[1], elapsed[2]), elapsed[3]) << fine.name;
  EXPECT_GT(elapsed[3], elapsed[4]) << checkpoints.name;
  EXPECT_GT(elapsed[4], elapsed[5]) << optimizer.name;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    EXPECT_LE(error_of(elapsed[i], bars[i].published.elapsed), 0.06) << bars[i].name;
  }
}

}  // namespace
}  // namespace penstock::published
