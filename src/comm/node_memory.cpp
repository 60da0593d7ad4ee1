// SPDX-License-Identifier: Apache-2.0
#include "comm/node_memory.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/available_memory.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"

namespace penstock {
namespace {

struct FileTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void close(Handle file) noexcept { ::close(file); }
};
using OwnedFile = UniqueHandle<FileTraits>;

constexpr std::string_view what_needs_less = "use more nodes, a smaller model, or memory.parameters: device";

/// Before any of it is taken: where the kernel has promised more than there is, it ends processes.
void check_available(Bytes own, Bytes of_machine, std::string_view what) {
  const Bytes available = available_memory();
  if (own.value == 0 || of_machine <= available) return;
  fail(ExitCode::does_not_fit, "{}: {} are asked for on this machine, {} of its memory are left; {}", what,
       to_text(of_machine), to_text(available), what_needs_less);
}

/// A file of `bytes` that lies in memory only; none for 0 bytes.
OwnedFile make_file(Bytes bytes, std::string_view what) {
  if (bytes.value == 0) return OwnedFile{};
  const auto refuse = [&](int reason) {
    const auto doing = fmt::format("reserving {} that the ranks of a node share for {}", to_text(bytes), what);
    fail(ExitCode::does_not_fit, "{}; {}", system_error_text(doing, reason), what_needs_less);
  };
  OwnedFile file{memfd_create("penstock", MFD_CLOEXEC)};
  if (!file) refuse(errno);
  int status = 0;
  do {
    status = posix_fallocate(file.get(), 0, bytes.value);
  } while (status == EINTR);
  if (status != 0) refuse(status);
  return file;
}

}  // namespace

void NodeMemory::MappingTraits::close(Handle mapping) noexcept {
  if (munmap(mapping.start, mapping.bytes) != 0) log::warning("releasing memory shared by a node: munmap failed");
}

NodeMemory::OwnedMapping NodeMemory::map(int file, Bytes bytes, int protection, std::string_view what) {
  if (bytes.value == 0) return OwnedMapping{};
  const auto length = static_cast<std::size_t>(bytes.value);
  void* start = mmap(nullptr, length, protection, MAP_SHARED, file, 0);
  if (start == MAP_FAILED) {
    const auto doing = fmt::format("mapping {} that the ranks of a node share for {}", to_text(bytes), what);
    fail(ExitCode::does_not_fit, "{}; {}", system_error_text(doing, errno), what_needs_less);
  }
  return OwnedMapping{{static_cast<std::byte*>(start), length}};
}

NodeMemory::OwnedMapping NodeMemory::map_of(std::int64_t process, std::int64_t file, Bytes bytes,
                                            std::string_view what) {
  if (bytes.value == 0) return OwnedMapping{};
  const auto path = fmt::format("/proc/{}/fd/{}", process, file);
  const OwnedFile opened{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!opened) {
    fail(ExitCode::bad_input,
         "{}: the ranks of this node cannot share {}; let them run as one user who sees all of them in /proc, or set "
         "parallel.ranks_per_node: 1, by which they send messages instead",
         system_error_text(path, errno), what);
  }
  return map(opened.get(), bytes, PROT_READ, what);
}

NodeMemory::NodeMemory(const Nodes& nodes, Bytes own, std::string_view what) : own_place_{nodes.own().rank()} {
  const auto bytes = nodes.own().all_gather(own.value);
  const Bytes of_machine{nodes.group().split_by_machine().sum(own.value)};
  jointly(nodes.group(), [&] { check_available(own, of_machine, what); });
  OwnedFile file;
  OwnedMapping block;
  jointly(nodes.group(), [&] {
    file = make_file(own, what);
    block = map(file.get(), own, PROT_READ | PROT_WRITE, what);
  });
  const auto processes = nodes.own().all_gather(std::int64_t{getpid()});
  const auto files = nodes.own().all_gather(std::int64_t{file.get()});
  jointly(nodes.group(), [&] {
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const bool is_own = static_cast<int>(rank) == own_place_;
      blocks_.push_back(is_own ? OwnedMapping{} : map_of(processes[rank], files[rank], Bytes{bytes[rank]}, what));
    }
  });
  blocks_[static_cast<std::size_t>(own_place_)] = std::move(block);
}

std::span<std::byte> NodeMemory::own() const {
  const Mapping mapping = blocks_[static_cast<std::size_t>(own_place_)].get();
  return {mapping.start, mapping.bytes};
}

std::span<const std::byte> NodeMemory::of(int rank) const {
  const Mapping mapping = blocks_[static_cast<std::size_t>(rank)].get();
  return {mapping.start, mapping.bytes};
}

}  // namespace penstock
