// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace penstock {
namespace {

/// The number after `name` in a file of lines `name number`; after nothing, for an empty name.
std::optional<std::int64_t> number_in(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file{path};
  std::string word;
  while (!name.empty() && file >> word && word != name) {
  }
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// What control group `folder` (version 2) leaves: files that it only keeps cached count as free.
std::optional<std::int64_t> left_in_group(const std::filesystem::path& folder) {
  const auto limit = number_in(folder / "memory.max", "");
  const auto used = number_in(folder / "memory.current", "");
  if (!limit || !used) return std::nullopt;
  const auto cached = number_in(folder / "memory.stat", "inactive_file").value_or(0);
  return std::max<std::int64_t>(0, *limit - *used + cached);
}

/// The least of an entry of /proc/meminfo and of what `in_group` says of each control group (version 2) of this
/// process.
template <class InGroup>
Bytes least_of(const std::string& entry, const InGroup& in_group) {
  constexpr std::int64_t kibibyte = 1024;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  if (const auto of_machine = number_in("/proc/meminfo", entry)) least = *of_machine * kibibyte;
  std::ifstream groups{"/proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    const std::filesystem::path root = "/sys/fs/cgroup";
    for (auto folder = root / line.substr(4); folder != root.parent_path(); folder = folder.parent_path()) {
      if (const auto of_group = in_group(folder)) least = std::min(least, *of_group);
    }
  }
  return Bytes{least};
}

}  // namespace

Bytes available_memory() {
  return least_of("MemAvailable:", left_in_group);
}

Bytes total_memory() {
  return least_of("MemTotal:",
                  [](const std::filesystem::path& folder) { return number_in(folder / "memory.max", ""); });
}

}  // namespace penstock
