// SPDX-License-Identifier: Apache-2.0
#include "device/host/aligned_memory.hpp"

#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/log.hpp"

namespace penstock {
namespace {

[[noreturn]] void refuse(Bytes size, int error_number) {
  throw Error{
      ExitCode::does_not_fit,
      system_error_text(fmt::format("reserving {} of host memory for the device", to_text(size)), error_number) +
          ". Lower memory.device, or run on a machine with more memory."};
}

std::byte* align_up(void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  const auto misfit = value % static_cast<std::uintptr_t>(AlignedMemory::alignment);
  auto* bytes = static_cast<std::byte*>(address);
  return misfit == 0 ? bytes : bytes + (static_cast<std::uintptr_t>(AlignedMemory::alignment) - misfit);
}

}  // namespace

AlignedMemory::AlignedMemory(Bytes size) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  if (size.value > std::numeric_limits<std::int64_t>::max() - 2 * (alignment + page)) refuse(size, ENOMEM);
  const std::int64_t usable = round_up(size.value, page);
  mapped_bytes_ = static_cast<std::size_t>(usable + alignment + page);
  void* mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) refuse(size, errno);
  mapping_ = mapping;
  data_ = align_up(mapping);
  // Both are advice: without huge pages or without the guard the memory works all the same.
  if (usable > 0) madvise(data_, static_cast<std::size_t>(usable), MADV_HUGEPAGE);
  mprotect(data_ + usable, static_cast<std::size_t>(page), PROT_NONE);
}

AlignedMemory::AlignedMemory(AlignedMemory&& other) noexcept {
  *this = std::move(other);
}

AlignedMemory& AlignedMemory::operator=(AlignedMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

AlignedMemory::~AlignedMemory() {
  if (mapping_ != nullptr && munmap(mapping_, mapped_bytes_) != 0) {
    log::warning(system_error_text("giving back the device memory", errno));
  }
}

}  // namespace penstock
