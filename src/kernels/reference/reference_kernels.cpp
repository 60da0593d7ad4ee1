// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference_kernels.hpp"

namespace penstock {
namespace reference {

std::string ReferenceKernels::description() const {
  return "reference (naive, double accumulation, 1 thread)";
}

Bytes ReferenceKernels::scratch_bytes(const KernelLimits& /*limits*/) const {
  return Bytes{0};
}

void ReferenceKernels::bind_scratch(std::span<std::byte> /*scratch*/) {}

}  // namespace reference

std::unique_ptr<Kernels> make_reference_kernels() {
  return std::make_unique<reference::ReferenceKernels>();
}

}  // namespace penstock
