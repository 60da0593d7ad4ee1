// SPDX-License-Identifier: Apache-2.0
#include "support/temporary_directory.hpp"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <stdlib.h>

#include "base/error.hpp"

namespace penstock::test {

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "penstock_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error{system_error_text("making the folder " + name, errno)};
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // what cannot be removed is left to the system's cleaning of temporary files
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryDirectory::write(std::string_view name, std::string_view contents) const {
  std::string file = *this / name;
  std::filesystem::create_directories(std::filesystem::path{file}.parent_path());
  std::ofstream stream{file, std::ios::binary};
  stream.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  if (!stream.flush()) throw std::runtime_error{system_error_text("writing " + file, errno)};
  return file;
}

std::string TemporaryDirectory::read(std::string_view name) const {
  std::ifstream stream{*this / name, std::ios::binary};
  if (!stream) throw std::runtime_error{system_error_text("reading " + *this / name, errno)};
  return {std::istreambuf_iterator<char>{stream}, {}};
}

}  // namespace penstock::test
