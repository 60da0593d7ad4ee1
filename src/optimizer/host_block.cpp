// SPDX-License-Identifier: Apache-2.0
#include "optimizer/host_block.hpp"

#include <cerrno>
#include <cstdint>

#include <sys/mman.h>

#include "base/error.hpp"
#include "base/log.hpp"

namespace penstock {
namespace {

constexpr std::int64_t huge_page = std::int64_t{1} << 21;

}  // namespace

void HostBlock::MappingTraits::close(Handle mapping) noexcept {
  if (munmap(mapping.start, mapping.length) != 0) log::warning("releasing host memory: munmap failed");
}

HostBlock::HostBlock(Bytes bytes, const std::string& what) : bytes_{bytes} {
  require(bytes.value >= 0, "{}: {} bytes of host memory asked for", what, bytes.value);
  if (bytes.value == 0) return;
  const bool is_large = bytes.value >= huge_page;
  const auto length = static_cast<std::size_t>(bytes.value + (is_large ? huge_page : 0));
  void* start = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    fail(ExitCode::does_not_fit, "reserving {} of host memory for {}: {}; use fewer ranks per node or a smaller model",
         to_text(bytes), what, system_error_text("mmap", errno));
  }
  mapping_.reset({start, length});
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::size_t skipped = is_large ? (huge_page - address % huge_page) % huge_page : 0;
  data_ = static_cast<std::byte*>(start) + skipped;
  // Advice only: a kernel without transparent huge pages refuses it, and nothing but speed is lost.
  if (is_large) (void)madvise(data_, static_cast<std::size_t>(bytes.value), MADV_HUGEPAGE);
}

}  // namespace penstock
