// SPDX-License-Identifier: Apache-2.0
#include "app/text_file.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "base/error.hpp"

namespace penstock {

namespace fs = std::filesystem;

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file{path, std::ios::binary | std::ios::trunc};
  file << text;
  file.flush();
  if (!file) throw Error{ExitCode::cannot_write, system_error_text("writing " + path, errno)};
}

std::string move_aside(const std::string& path) {
  if (!fs::is_regular_file(path)) return {};
  int number = 1;
  const auto candidate = [&] { return fmt::format("{}.previous.{}", path, number); };
  while (fs::exists(candidate())) ++number;
  std::error_code failure;
  fs::rename(path, candidate(), failure);
  if (failure) {
    fail(ExitCode::cannot_write, "{} stands in the way and cannot be renamed to {}: {}", path, candidate(),
         failure.message());
  }
  return fmt::format("what was in {} is now in {}\n", path, candidate());
}

std::string read_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw Error{ExitCode::damaged_input, system_error_text("reading the schedule " + path, errno)};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace penstock
