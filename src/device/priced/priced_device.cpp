// SPDX-License-Identifier: Apache-2.0
#include "device/priced/priced_device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/log.hpp"
#include "device/capacity.hpp"
#include "device/host/host_queue.hpp"

namespace penstock {
namespace {

/// A range of addresses that nobody else is given, and that cannot be read or written.
struct AddressRange {
  void* start = nullptr;
  std::size_t length = 0;
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};
struct AddressRangeTraits {
  using Handle = AddressRange;
  static Handle null() noexcept { return {}; }
  static void close(Handle range) noexcept {
    if (munmap(range.start, range.length) != 0) log::warning("releasing the addresses of the priced device failed");
  }
};

AddressRange take_addresses(Bytes bytes) {
  const auto length = static_cast<std::size_t>(std::max<std::int64_t>(bytes.value, 1));
  void* start = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    throw Error{ExitCode::does_not_fit,
                system_error_text("taking addresses for " + to_text(bytes) + " of the priced device", errno)};
  }
  return {start, length};
}

class PricedDevice final : public Device {
 public:
  PricedDevice(Bytes capacity_limit, DelayOptions delays) : capacity_limit_{capacity_limit}, delays_{delays} {}

  std::string description() const override {
    return fmt::format("priced, {} of addresses without memory", to_text(capacity_limit_));
  }

  std::byte* reserve(Bytes capacity) override {
    require(!addresses_, "the device memory was reserved twice");
    require_capacity(capacity, capacity_limit_);
    addresses_.reset(take_addresses(capacity));
    return static_cast<std::byte*>(addresses_.get().start);
  }

  std::unique_ptr<Queue> make_queue(const std::string& name) override {
    return std::make_unique<HostQueue>(name, queues_++, delays_);
  }

  Event copy_to_device(Queue& /*queue*/, std::vector<Event> /*after*/, std::byte* /*device*/, const std::byte* /*host*/,
                       Bytes bytes) override {
    refuse_copy(bytes);
  }

  Event copy_to_host(Queue& /*queue*/, std::vector<Event> /*after*/, std::byte* /*host*/, const std::byte* /*device*/,
                     Bytes bytes) override {
    refuse_copy(bytes);
  }

 private:
  [[noreturn]] static void refuse_copy(Bytes bytes) {
    fail(ExitCode::internal, "a copy of {} bytes from or to the priced device, which has no memory", bytes.value);
  }

  Bytes capacity_limit_;
  DelayOptions delays_;
  UniqueHandle<AddressRangeTraits> addresses_;
  std::uint64_t queues_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_priced_device(Bytes capacity_limit, DelayOptions delays) {
  return std::make_unique<PricedDevice>(capacity_limit, delays);
}

}  // namespace penstock
