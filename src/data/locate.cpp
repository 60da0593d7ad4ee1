// SPDX-License-Identifier: Apache-2.0
#include "data/locate.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include "base/error.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct Found {
  std::string path;
  DataKind kind;
  bool named;
};

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Number of single-letter changes that make one word of the other, a row of the table at a time.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

/// The three entries of `folder` whose names are nearest to `name`.
std::vector<std::string> nearest_entries(const fs::path& folder, const std::string& name) {
  std::vector<std::pair<std::size_t, std::string>> entries;
  std::error_code error;
  for (fs::directory_iterator at{folder, error}, end; !error && at != end; at.increment(error)) {
    std::string entry = at->path().filename().string();
    if (!entry.starts_with('.')) entries.emplace_back(distance(entry, name), std::move(entry));
  }
  std::sort(entries.begin(), entries.end());
  if (entries.size() > 3) entries.resize(3);
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (auto& [ignored, entry] : entries) names.push_back(std::move(entry));
  return names;
}

/// Where the path leaves what exists, and what is there instead.
std::string what_is_near(const std::string& path) {
  fs::path missing{path};
  if (!missing.has_filename()) missing = missing.parent_path();  // a slash at the end
  fs::path folder = missing.parent_path();
  while (!folder.empty() && folder.has_relative_path() && !is_folder(folder.string())) {
    missing = folder;
    folder = folder.parent_path();
  }
  if (folder.empty()) folder = ".";
  const auto names = nearest_entries(folder, missing.filename().string());
  const std::string where = folder == "." ? "the working directory" : folder.string();
  if (names.empty()) return fmt::format("{} is empty", where);
  return fmt::format("nearest in {}: {}", where, fmt::join(names, ", "));
}

[[noreturn]] void fail_missing(const std::string& path, const std::string& key) {
  for (const char* half : {".bin", ".idx"}) {
    if (!is_file(path + half)) continue;
    fail(ExitCode::bad_input, "{}: {}: {}{} exists alone; a Megatron data set needs {}.idx and {}.bin", key, path, path,
         half, path, path);
  }
  fail(ExitCode::bad_input, "{}: {}: no such file or folder; {}", key, path, what_is_near(path));
}

DataKind kind_of(const std::string& path, const std::string& key) {
  if (path.ends_with(".idx") && is_file(path.substr(0, path.size() - 4) + ".bin")) {
    fail(ExitCode::bad_input, "{}: {}: write the prefix of a Megatron data set, without the ending: {}", key, path,
         path.substr(0, path.size() - 4));
  }
  if (is_file(path + ".idx") && is_file(path + ".bin")) return DataKind::megatron;
  if (!exists(path)) fail_missing(path, key);
  if (is_folder(path)) return DataKind::text;
  if (!is_file(path)) {
    fail(ExitCode::bad_input, "{}: {}: neither a file nor a folder; a device or a pipe cannot be read twice", key,
         path);
  }
  return path.ends_with(".bin") ? DataKind::llmc : DataKind::text;
}

/// The paths that match a pattern, by their bytes (glob's own order depends on the language settings).
std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos;
}

/// What one path of the list stands for.
void expand(const std::string& path, const std::string& key, std::vector<Found>& found) {
  if (path.empty()) fail(ExitCode::bad_input, "{}: an empty path; write . for the working directory", key);
  if (exists(path) || !is_pattern(path)) {
    found.push_back({path, kind_of(path, key), true});
    return;
  }
  const auto paths = matches(path);
  if (paths.empty()) fail(ExitCode::bad_input, "{}: {}: no file matches; {}", key, path, what_is_near(path));
  for (const std::string& match : paths) found.push_back({match, kind_of(match, key), false});
}

void refuse_mixture(const std::vector<Found>& found, const std::string& key) {
  const bool same =
      std::all_of(found.begin(), found.end(), [&](const Found& f) { return f.kind == found.front().kind; });
  if (same) return;
  std::string list;
  for (const Found& f : found) list += fmt::format("\n  {}: {}", f.path, name_of(f.kind));
  fail(ExitCode::bad_input, "{}: the paths lead to data of several kinds, which have no tokens in common:{}", key,
       list);
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

[[noreturn]] void fail_walking(const std::string& folder, const std::error_code& error) {
  throw Error{ExitCode::damaged_input, system_error_text("reading the folder " + folder, error.value())};
}

/// The text files under `folder`, by the bytes of their paths.
std::vector<std::string> walk(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator at{folder, error}, end; at != end; at.increment(error)) {
    if (error) break;
    if (is_hidden(at->path())) {
      at.disable_recursion_pending();
    } else if (is_file(at->path().string())) {
      paths.push_back(at->path().lexically_normal().string());
    }
  }
  if (error) fail_walking(folder, error);
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Adds files, each one once.
class Collector {
 public:
  void add(const std::string& path, const std::string& file, bool named) {
    FileRecord record = record_of(file);
    record.path = path;
    if (!seen_.insert(record.identity).second) {
      if (repeated_++ == 0) first_repeated_ = path;
      return;
    }
    located_.files.push_back({std::move(record), named});
  }

  Located finish(DataKind kind) {
    located_.kind = kind;
    if (repeated_ > 0) {
      located_.notes.push_back(
          fmt::format("{} {} to a file that is in the list already and is read once, the first: {}", repeated_,
                      repeated_ == 1 ? "path leads" : "paths lead", first_repeated_));
    }
    return std::move(located_);
  }

 private:
  Located located_;
  std::set<FileIdentity> seen_;
  std::int64_t repeated_ = 0;
  std::string first_repeated_;
};

}  // namespace

std::string_view name_of(DataKind kind) {
  switch (kind) {
    case DataKind::text:
      return "text";
    case DataKind::llmc:
      return "llm.c tokens";
    case DataKind::megatron:
      return "Megatron tokens";
  }
  fail(ExitCode::internal, "data kind {} is none", static_cast<int>(kind));
}

Located locate(const std::vector<std::string>& paths, const std::string& key) {
  if (paths.empty()) fail(ExitCode::bad_input, "{}: the list is empty; name files, folders or a Megatron prefix", key);
  std::vector<Found> found;
  for (const std::string& path : paths) expand(path, key, found);
  refuse_mixture(found, key);
  const DataKind kind = found.front().kind;
  Collector collector;
  for (const Found& f : found) {
    if (kind == DataKind::megatron) {
      collector.add(f.path, f.path + ".bin", f.named);
    } else if (is_folder(f.path)) {
      for (const std::string& file : walk(f.path)) collector.add(file, file, false);
    } else {
      collector.add(f.path, f.path, f.named);
    }
  }
  return collector.finish(kind);
}

}  // namespace penstock
