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

}  // namespace

Bytes available_memory() {
  constexpr std::int64_t kibibyte = 1024;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  if (const auto available = number_in("/proc/meminfo", "MemAvailable:")) least = *available * kibibyte;
  std::ifstream groups{"/proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    const std::filesystem::path root = "/sys/fs/cgroup";
    for (auto folder = root / line.substr(4); folder != root.parent_path(); folder = folder.parent_path()) {
      if (const auto left = left_in_group(folder)) least = std::min(least, *left);
    }
  }
  return Bytes{least};
}

}  // namespace penstock
