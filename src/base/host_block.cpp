// SPDX-License-Identifier: Apache-2.0
#include "base/host_block.hpp"

#include <cerrno>
#include <cstdint>
#include <limits>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/log.hpp"

namespace penstock {
namespace {

constexpr std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max() / 2;  // room left to round up and align

std::byte* align_up(void* address) {
  const auto misfit = reinterpret_cast<std::uintptr_t>(address) % std::uintptr_t{HostBlock::alignment};
  auto* bytes = static_cast<std::byte*>(address);
  return misfit == 0 ? bytes : bytes + (std::uintptr_t{HostBlock::alignment} - misfit);
}

}  // namespace

void HostBlock::MappingTraits::close(Handle mapping) noexcept {
  if (munmap(mapping.start, mapping.length) != 0) log::warning("releasing host memory: munmap failed");
}

HostBlock::HostBlock(Bytes bytes, std::string_view what, std::string_view advice) : bytes_{bytes} {
  require(bytes.value >= 0, "{}: {} bytes of host memory asked for", what, bytes.value);
  const auto refuse = [&](int reason) {
    const auto doing = fmt::format("reserving {} of host memory for {}", to_text(bytes), what);
    fail(ExitCode::does_not_fit, "{}; {}", system_error_text(doing, reason), advice);
  };
  if (bytes.value > most_bytes) refuse(ENOMEM);
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t usable = round_up(bytes.value, page);
  const auto length = static_cast<std::size_t>(usable + alignment + page);
  void* start = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) refuse(errno);
  mapping_.reset({start, length});
  data_ = align_up(start);
  // Both are advice: without huge pages or without the guard the memory works all the same.
  if (usable > 0) madvise(data_, static_cast<std::size_t>(usable), MADV_HUGEPAGE);
  mprotect(data_ + usable, static_cast<std::size_t>(page), PROT_NONE);
}

}  // namespace penstock
