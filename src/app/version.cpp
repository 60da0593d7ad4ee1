// SPDX-License-Identifier: Apache-2.0
#include "app/commands.hpp"

namespace penstock {

std::string program_version() {
  return PENSTOCK_VERSION;
}

}  // namespace penstock
