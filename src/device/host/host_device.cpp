// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_device.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/host_block.hpp"
#include "device/capacity.hpp"
#include "device/host/host_queue.hpp"

namespace penstock {
namespace {

class HostDevice final : public Device {
 public:
  HostDevice(Bytes capacity_limit, DelayOptions delays, InitialContents contents)
      : capacity_limit_{capacity_limit}, delays_{delays}, contents_{contents} {}

  std::string description() const override { return fmt::format("host, {}", to_text(capacity_limit_)); }

  std::byte* reserve(Bytes capacity) override {
    require(memory_.data() == nullptr, "the device memory was reserved twice");
    require_capacity(capacity, capacity_limit_);
    memory_ = HostBlock{capacity, "the device", "lower memory.device, or run on a machine with more memory"};
    if (contents_ == InitialContents::not_a_number) {
      std::memset(memory_.data(), 0xFF, static_cast<std::size_t>(capacity.value));
    }
    return memory_.data();
  }

  std::unique_ptr<Queue> make_queue(const std::string& name) override {
    return std::make_unique<HostQueue>(name, queues_++, delays_);
  }

  Event copy_to_device(Queue& queue, std::vector<Event> after, std::byte* device, const std::byte* host,
                       Bytes bytes) override {
    return copy(queue, std::move(after), device, host, bytes);
  }

  Event copy_to_host(Queue& queue, std::vector<Event> after, std::byte* host, const std::byte* device,
                     Bytes bytes) override {
    return copy(queue, std::move(after), host, device, bytes);
  }

 private:
  static Event copy(Queue& queue, std::vector<Event> after, std::byte* to, const std::byte* from, Bytes bytes) {
    require(bytes.value >= 0, "a copy of {} bytes", bytes.value);
    return queue.submit(std::move(after), [to, from, bytes] {
      if (bytes.value > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes.value));
    });
  }

  Bytes capacity_limit_;
  DelayOptions delays_;
  InitialContents contents_;
  HostBlock memory_;
  std::uint64_t queues_ = 0;
};

}  // namespace

InitialContents default_initial_contents() {
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return InitialContents::not_a_number;
#else
  return InitialContents::zero;
#endif
}

std::unique_ptr<Device> make_host_device(Bytes capacity_limit, DelayOptions delays, InitialContents contents) {
  return std::make_unique<HostDevice>(capacity_limit, delays, contents);
}

}  // namespace penstock
