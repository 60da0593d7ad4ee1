// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step_";
constexpr std::string_view suffix = ".h5";
constexpr std::string_view unfinished = ".h5.partial";

[[noreturn]] void fail_with_errno(const std::string& doing) {
  throw Error{ExitCode::cannot_write, system_error_text(doing, errno)};
}

Descriptor open_descriptor(const std::string& path, int flags) {
  Descriptor descriptor{::open(path.c_str(), flags | O_CLOEXEC)};
  if (!descriptor) fail_with_errno("opening " + path);
  return descriptor;
}

std::optional<std::int64_t> step_of(std::string_view name, std::string_view ending) {
  if (!name.starts_with(prefix) || !name.ends_with(ending) || name.size() <= prefix.size() + ending.size()) return {};
  const auto digits = name.substr(prefix.size(), name.size() - prefix.size() - ending.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size() || step < 0) return {};
  return step;
}

/// Files named step_N<ending>, the newest first.
std::vector<CheckpointFile> list(const std::string& folder, std::string_view ending) {
  std::vector<CheckpointFile> files;
  std::error_code error;
  if (!fs::exists(folder, error)) return files;
  try {
    for (const auto& entry : fs::directory_iterator{folder}) {
      const auto step = step_of(entry.path().filename().native(), ending);
      if (step) files.push_back({*step, entry.path().native()});
    }
  } catch (const fs::filesystem_error& failure) {
    fail(ExitCode::bad_input, "listing the checkpoints in {}: {}", folder, failure.code().message());
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return files;
}

void remove_or_warn(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) log::warning("removing {}: {}", path, error.message());
}

/// What may go so that a checkpoint finds room. output.keep removes files after the next success alone.
std::string advice_on_room(const std::string& path) {
  const auto files = list(fs::path{path}.parent_path().native(), suffix);
  if (files.size() < 2) return "free some, or choose another output.directory";
  return fmt::format("free some, or choose another output.directory; {} may be deleted, as {} is newer",
                     files.back().path, files.front().path);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}{}", prefix, step, suffix);
}

std::vector<CheckpointFile> list_checkpoints(const std::string& folder) {
  return list(folder, suffix);
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) fail(ExitCode::cannot_write, "making the folder {}: {}", folder, error.message());
}

void publish(const std::string& partial, const std::string& path) {
  if (std::rename(partial.c_str(), path.c_str()) != 0) fail_with_errno("renaming " + partial + " to " + path);
  const std::string folder = fs::path{path}.parent_path().native();
  const auto descriptor = open_descriptor(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(descriptor.get()) != 0) fail_with_errno("waiting for the disk to hold the names in " + folder);
}

void prune(const std::string& folder, std::int64_t step, std::int32_t keep) {
  try {
    std::int32_t kept = 0;
    for (const auto& file : list(folder, suffix)) {
      if (file.step <= step && ++kept > std::max(keep, 1)) remove_or_warn(file.path);
    }
    for (const auto& file : list(folder, unfinished)) remove_or_warn(file.path);
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
}

void begin_to_synchronize(const std::string& path) {
  const auto descriptor = open_descriptor(path, O_RDWR);
  // Hints: where the file system has no such calls, synchronize does all of the work.
  (void)::sync_file_range(descriptor.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  (void)::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void synchronize(const std::string& path) {
  const auto descriptor = open_descriptor(path, O_RDWR);
  if (::fdatasync(descriptor.get()) != 0) fail_with_errno("waiting for the disk to hold " + path);
  (void)::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void reserve(const std::string& path, Bytes bytes) {
  const auto descriptor = open_descriptor(path, O_RDWR);
  if (::fallocate(descriptor.get(), 0, 0, bytes.value) == 0) return;
  const int reason = errno;
  if (reason != ENOSPC && reason != EDQUOT && reason != EFBIG)
    return;  // the file system cannot reserve: writes will tell
  std::error_code ignored;
  const auto room = fs::space(path, ignored);
  throw Error{
      ExitCode::cannot_write,
      system_error_text(
          fmt::format("writing {}, which needs {} ({} bytes) where {} are free; {}", path, to_text(bytes), bytes.value,
                      to_text(Bytes{static_cast<std::int64_t>(room.available)}), advice_on_room(path)),
          reason)};
}

}  // namespace penstock
