// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace penstock::test {

/// A new empty folder, removed with all it holds at the end of the object's life.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  const std::filesystem::path& path() const { return path_; }
  /// The path of `name` in the folder.
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  /// Writes a file of `contents` and returns its path.
  std::string write(std::string_view name, std::string_view contents) const;
  /// What the file holds. @throws std::runtime_error if it cannot be read.
  std::string read(std::string_view name) const;

 private:
  std::filesystem::path path_;
};

}  // namespace penstock::test
