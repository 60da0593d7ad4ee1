// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/hardware.hpp"

namespace penstock {

/// The overrides of a command line by the file whose keys they speak of: `hardware.node.devices=4` is the key
/// node.devices of the hardware file, `training.steps=20` one of the deck. Each keeps its whole text, for messages.
struct SplitOverrides {
  std::vector<std::string> deck;
  std::vector<std::string> hardware;
};
SplitOverrides split_overrides(const std::vector<std::string>& overrides);

/// Reads a hardware file; `overrides` are those of SplitOverrides::hardware, applied in order before anything is
/// checked.
/// @throws Error bad_input with a line for every fault: `file:line:column: key: reason`.
HardwareOptions read_hardware(const std::string& path, const std::vector<std::string>& overrides = {});

/// The same from a text; `name` stands for the file in messages.
HardwareOptions parse_hardware(std::string_view text, const std::string& name,
                               const std::vector<std::string>& overrides = {});

/// The text of a hardware file, which reads back to the same figures.
std::string hardware_text(const HardwareOptions& hardware);

}  // namespace penstock
