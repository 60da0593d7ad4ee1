// SPDX-License-Identifier: Apache-2.0
#include "config/hardware_file.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/options_file.hpp"

namespace penstock {
namespace {

constexpr std::string_view override_prefix = "hardware.";

constexpr config::FileKind hardware_file{
    .name = "hardware file",
    .entry = "key",
    .when_empty = "doc/hardware.md says what belongs into it, and input/hardware/ holds some",
    .expectation = "keys such as name: and sections such as device:, products:"};

}  // namespace

SplitOverrides split_overrides(const std::vector<std::string>& overrides) {
  SplitOverrides split;
  for (const auto& text : overrides) (text.starts_with(override_prefix) ? split.hardware : split.deck).push_back(text);
  return split;
}

HardwareOptions parse_hardware(std::string_view text, const std::string& name,
                               const std::vector<std::string>& overrides) {
  config::OptionsFile file{text, hardware_file, overrides, override_prefix};
  auto options = file.read<HardwareOptions>();
  file.add(check_hardware(options));
  file.throw_faults(name, overrides);
  return options;
}

HardwareOptions read_hardware(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_hardware(config::read_options_text(path, hardware_file), path, overrides);
}

}  // namespace penstock
