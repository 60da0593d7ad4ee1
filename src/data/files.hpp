// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace penstock {

/// What a file is, whatever path leads to it.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator<(const FileIdentity& a, const FileIdentity& b) {
    return a.device != b.device ? a.device < b.device : a.inode < b.inode;
  }
};

/// A regular file as the file system describes it.
struct FileRecord {
  std::string path;  ///< as the deck, a pattern or the walk of a folder gave it
  FileIdentity identity;
  Bytes bytes{0};
};

/// @throws Error damaged_input when the file cannot be looked at.
FileRecord record_of(const std::string& path);

/// A regular file mapped for reading. It must not be shortened while it is mapped: the system would end the process.
class MappedFile {
 public:
  /// @throws Error damaged_input with the system's reason.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Appends the content of a file to `to`, at most `limit` bytes of it.
/// @throws Error damaged_input with the system's reason, or when the file is longer than `limit`.
void append_file(const std::string& path, Bytes limit, std::string& to);

/// 64-bit FNV-1a over the bytes, continuing from `hash`.
class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span{text.data(), text.size()})); }
  void add(std::int64_t number) { add(std::as_bytes(std::span{&number, 1})); }
  /// The first and last 64 KiB: enough to tell files of gigabytes apart without reading them whole.
  void add_ends(std::span<const std::byte> bytes);
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

}  // namespace penstock
