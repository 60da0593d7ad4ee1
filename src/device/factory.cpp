// SPDX-License-Identifier: Apache-2.0
#include "device/factory.hpp"

#include "base/error.hpp"
#include "device/host/host_device.hpp"
#include "device/priced/priced_device.hpp"

namespace penstock {

std::unique_ptr<Device> make_device(std::string_view kind, Bytes capacity, DelayOptions delays) {
  if (kind == "host") return make_host_device(capacity, delays);
  if (kind == "priced") return make_priced_device(capacity, delays);
  if (kind == "cuda") {
    fail(ExitCode::bad_input,
         "device.kind: cuda: this version of Penstock was built without CUDA and runs on the host device only; set "
         "device: {{kind: host}}");
  }
  fail(ExitCode::bad_input, "device.kind: {}: no such device; this version of Penstock has: host, priced", kind);
}

}  // namespace penstock
