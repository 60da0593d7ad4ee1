// SPDX-License-Identifier: Apache-2.0
#include "device/capacity.hpp"

#include "base/error.hpp"

namespace penstock {

void require_capacity(Bytes needed, Bytes capacity) {
  require(needed.value >= 0, "reserving {} bytes of device memory", needed.value);
  if (needed <= capacity) return;
  fail(ExitCode::does_not_fit,
       "the run needs {} ({} bytes) of device memory, the device has {} ({} bytes). Raise memory.device, or lower what "
       "the run keeps (micro-batch, sequence, recompute).",
       to_text(needed), needed.value, to_text(capacity), capacity.value);
}

}  // namespace penstock
