// SPDX-License-Identifier: Apache-2.0
#include "app/text_file.hpp"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace penstock {

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file{path, std::ios::binary | std::ios::trunc};
  file << text;
  file.flush();
  if (!file) throw Error{code_of_failed_write(errno), system_error_text("writing " + path, errno)};
}

std::string read_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw Error{ExitCode::damaged_input, system_error_text("reading the schedule " + path, errno)};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace penstock
