// SPDX-License-Identifier: Apache-2.0
#include "data/files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/log.hpp"

namespace penstock {
namespace {

struct DescriptorTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void close(Handle descriptor) noexcept {
    if (::close(descriptor) != 0) log::warning(system_error_text("closing a data file", errno));
  }
};
using Descriptor = UniqueHandle<DescriptorTraits>;

[[noreturn]] void fail_reading(const std::string& path) {
  throw Error{ExitCode::damaged_input, system_error_text("reading " + path, errno)};
}

Descriptor open_to_read(const std::string& path) {
  Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!descriptor) fail_reading(path);
  return descriptor;
}

}  // namespace

FileRecord record_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_reading(path);
  return {path, {status.st_dev, status.st_ino}, Bytes{status.st_size}};
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor descriptor = open_to_read(path);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail_reading(path);
  if (status.st_size == 0) return;  // nothing can be mapped of an empty file
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (address == MAP_FAILED) fail_reading(path);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  if (::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()) != 0)
    log::warning(system_error_text("unmapping a data file", errno));
}

void append_file(const std::string& path, Bytes limit, std::string& to) {
  std::array<char, std::size_t{1} << 16U> block;
  const Descriptor descriptor = open_to_read(path);
  std::int64_t total = 0;
  for (;;) {
    const ssize_t got = ::read(descriptor.get(), block.data(), block.size());
    if (got == 0) return;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading(path);
    total += got;
    if (total > limit.value)
      fail(ExitCode::damaged_input, "{}: longer than {}, what is left of the limit on text", path, to_text(limit));
    to.append(block.data(), static_cast<std::size_t>(got));
  }
}

void Fingerprint::add(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) hash_ = (hash_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3U;
}

void Fingerprint::add_ends(std::span<const std::byte> bytes) {
  constexpr std::size_t end = std::size_t{1} << 16U;
  add(bytes.first(std::min(end, bytes.size())));
  add(bytes.last(std::min(end, bytes.size())));
}

}  // namespace penstock
