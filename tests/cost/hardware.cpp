// SPDX-License-Identifier: Apache-2.0
#include "cost/hardware.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "config/hardware_file.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A hardware file in which each line can be replaced.
std::string text_with(const std::string& from = "", const std::string& to = "") {
  std::string text =
      "name: a machine\n"
      "device: {memory: 80 GiB, bandwidth: 3350 GB}\n"
      "products: {peak: 989e12, efficiency: 0.8}\n"
      "attention: {forward: 0.6, backward: 0.5}\n"
      "node: {devices: 8, host_memory: 2 TiB, optimizer_rate: 2e9}\n"
      "inside: {bandwidth: 450 GB, latency: 5 us}\n"
      "between: {bandwidth: 50 GB, latency: 5 us, shared_by: 4}\n"
      "to_device: {bandwidth: 50 GB}\n"
      "to_host: {bandwidth: 50 GB}\n";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

std::string faults_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_hardware(text, "machine.yaml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return {};
}

TEST(HardwareFile, GivesItsFiguresInUnitsOfOne) {
  const HardwareOptions hardware = parse_hardware(text_with(), "machine.yaml");

  EXPECT_EQ(hardware.name, "a machine");
  EXPECT_EQ(hardware.device.memory, Bytes{std::int64_t{80} << 30});
  EXPECT_EQ(hardware.device.bandwidth, Bytes{3'350'000'000'000});
  EXPECT_EQ(hardware.products.peak, 989e12);
  EXPECT_EQ(hardware.attention.backward, 0.5);
  EXPECT_DOUBLE_EQ(hardware.between.latency.value, 5e-6);
  EXPECT_EQ(hardware.between.shared_by, 4);
  EXPECT_EQ(hardware.inside.shared_by, 1);
}

TEST(HardwareFile, OfUnitHardwareNeedsNothingElse) {
  const HardwareOptions hardware = parse_hardware("name: unit\nunit: true\n", "unit.yaml");

  EXPECT_EQ(hardware, unit_hardware());
}

TEST(HardwareFile, OfUnitHardwareTakesNoFigures) {
  EXPECT_EQ(faults_of("name: unit\nunit: true\nnode: {devices: 8}\n"),
            "machine.yaml:3:1: node: no such key; the keys are name, source, unit");
}

TEST(HardwareFile, ShippedAreReadWithoutFault) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{"input/hardware"}) {
    const HardwareOptions hardware = read_hardware(entry.path());
    EXPECT_FALSE(hardware.source.empty());
    names.push_back(entry.path().stem());
  }

  EXPECT_THAT(names, testing::IsSupersetOf({"unit", "v100", "rtx3090", "rtx4090", "h100", "h200"}));
}

TEST(HardwareFile, TakesOverridesOfTheCommandLine) {
  const auto split = split_overrides({"training.steps=3", "hardware.attention.forward=0.7", "hardware.node.devices=4"});

  const HardwareOptions hardware = parse_hardware(text_with(), "machine.yaml", split.hardware);

  EXPECT_THAT(split.deck, ElementsAre("training.steps=3"));
  EXPECT_EQ(hardware.attention.forward, 0.7);
  EXPECT_EQ(hardware.node.devices, 4);
}

TEST(HardwareFile, NamesTheOverrideThatIsWrong) {
  EXPECT_EQ(faults_of(text_with(), {"hardware.attention.forward=1.2"}),
            "--set hardware.attention.forward=1.2: attention.forward: is '1.2', expected a number, above 0 to 1");
}

TEST(HardwareFile, NamesTheKeyThatIsMissing) {
  EXPECT_EQ(faults_of(text_with("to_host: {bandwidth: 50 GB}\n")),
            "machine.yaml:1:1: to_host.bandwidth: must be given: bytes a second in one direction");
}

TEST(HardwareFile, NamesTheNearestKey) {
  EXPECT_THAT(faults_of(text_with("latency: 5 us, shared_by", "latency: 5 us, shard_by")),
              HasSubstr("machine.yaml:7:44: between.shard_by: no such key; did you mean shared_by? The keys of between "
                        "are bandwidth, latency, shared_by"));
  EXPECT_THAT(faults_of(text_with("inside:", "insid:")), HasSubstr("machine.yaml:6:1: insid: no such key; did you mean "
                                                                   "inside?"));
}

TEST(HardwareFile, RefusesFiguresThatCannotBe) {
  EXPECT_EQ(faults_of(text_with("450 GB", "0")),
            "machine.yaml:6:21: inside.bandwidth: is '0', expected a size such as 2 GiB, 512MB or 4096, more than 0 B");
  EXPECT_EQ(
      faults_of(text_with("450 GB", "-450 GB")),
      "machine.yaml:6:21: inside.bandwidth: is '-450 GB', expected a size such as 2 GiB, 512MB or 4096, more than "
      "0 B");
  EXPECT_EQ(faults_of(text_with("0.8", "1.1")),
            "machine.yaml:3:38: products.efficiency: is '1.1', expected a number, above 0 to 1");
  EXPECT_EQ(faults_of(text_with("latency: 5 us}", "latency: -5 us}")),
            "machine.yaml:6:38: inside.latency: is '-5 us', expected a duration such as 90 s, 5 min or 2 h, at least 0 "
            "s");
  EXPECT_EQ(faults_of(text_with("2e9", "0")),
            "machine.yaml:5:56: node.optimizer_rate: is '0', expected a number, more than 0");
}

TEST(HardwareFile, RefusesFiguresThatContradictEachOther) {
  EXPECT_EQ(faults_of(text_with("shared_by: 4", "shared_by: 9")),
            "machine.yaml:7:55: between.shared_by: 9 devices cannot share a link of a node that has 8");
  EXPECT_EQ(faults_of(text_with("memory: 80 GiB", "memory: 80 GiB, reserve: 90 GiB")),
            "machine.yaml:2:35: device.reserve: 90.00 GiB leave nothing of the memory of 80.00 GiB");
  EXPECT_EQ(
      faults_of(text_with("efficiency: 0.8", "efficiency: [0.5, 0.8], sizes: [64]")),
      "machine.yaml:3:38: products.efficiency: has 2 figures for 1 size; give one figure for each size, or one and "
      "no sizes");
  EXPECT_EQ(faults_of(text_with("efficiency: 0.8", "efficiency: [0.5, 0.8], sizes: [64, 64]")),
            "machine.yaml:3:57: products.sizes: 64 stands before 64; sizes must ascend");
  EXPECT_THAT(faults_of(text_with("forward: 0.6, ", "")),
              HasSubstr("attention.forward: must be given: the share of products.peak"));
  EXPECT_THAT(faults_of(text_with("forward: 0.6", "fused: false, forward: 0.6")),
              HasSubstr("attention.forward: is 0.6, but belongs to fused kernels alone; leave it out"));
}

TEST(HardwareFile, SaysWhatAnEmptyOneNeeds) {
  EXPECT_THAT(faults_of("# nothing\n"), HasSubstr("the hardware file is empty; doc/hardware.md"));
  EXPECT_THAT(faults_of("- 1\n"), HasSubstr("is a list, expected keys such as name:"));
}

TEST(HardwareFile, ThatIsMissingIsNamed) {
  EXPECT_THROW(
      {
        try {
          read_hardware("no/such/file.yaml");
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("no/such/file.yaml: the hardware file cannot be opened"));
          throw;
        }
      },
      Error);
}

TEST(ProductEfficiency, IsLinearInTheLogarithmOfTheSize) {
  const ProductFigures figures{.efficiency = {0.5, 0.8}, .sizes = {1024, 4096}};

  EXPECT_DOUBLE_EQ(efficiency_at(figures, 100), 0.5);
  EXPECT_DOUBLE_EQ(efficiency_at(figures, 1024), 0.5);
  EXPECT_NEAR(efficiency_at(figures, 2048), 0.65, 1e-15);
  EXPECT_DOUBLE_EQ(efficiency_at(figures, 4096), 0.8);
  EXPECT_DOUBLE_EQ(efficiency_at(figures, 1e9), 0.8);
}

TEST(ProductEfficiency, IsOneFigureWithoutSizes) {
  EXPECT_DOUBLE_EQ(efficiency_at({.efficiency = {0.7}}, 17), 0.7);
}

TEST(CheckHardware, AcceptsUnitHardware) {
  EXPECT_THAT(check_hardware(unit_hardware()), IsEmpty());
}

}  // namespace
}  // namespace penstock
