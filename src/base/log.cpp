// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace penstock::log {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

constexpr std::size_t most_before_file = std::size_t{1} << 20U;

struct State {
  std::mutex mutex;
  std::optional<int> rank;
  bool shows_notes = true;
  std::unique_ptr<std::FILE, FileCloser> file;
  std::string before_file;  // lines of the time before there was a file, which gets them first
};

State& state() {
  static State instance;
  return instance;
}

/// One write per line, so that lines of several ranks on one terminal do not mix.
void write_line(std::FILE* stream, const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fflush(stream);
}

enum class Speaker : bool { this_rank, all };

void write(std::FILE* stream, Speaker speaker, std::string_view kind, std::string_view text) {
  auto& now = state();
  const std::lock_guard lock{now.mutex};
  const std::string who =
      now.rank && speaker == Speaker::this_rank ? fmt::format("rank {}: ", *now.rank) : std::string{};
  const std::string line = fmt::format("{}{}{}\n", who, kind, text);
  write_line(stream, line);
  if (now.file) {
    write_line(now.file.get(), line);
  } else if (now.before_file.size() < most_before_file) {
    now.before_file += line;
  }
}

}  // namespace

void set_process(int rank, bool shows_notes) {
  const std::lock_guard lock{state().mutex};
  state().rank = rank;
  state().shows_notes = shows_notes;
}

void copy_to_file(const std::string& path) {
  std::unique_ptr<std::FILE, FileCloser> file{std::fopen(path.c_str(), "a")};
  if (!file) throw Error{ExitCode::cannot_write, system_error_text("opening the log " + path, errno)};
  const std::lock_guard lock{state().mutex};
  state().file = std::move(file);
  write_line(state().file.get(), std::exchange(state().before_file, {}));
}

void note(std::string_view line) {
  if (state().shows_notes) write(stdout, Speaker::all, "", line);
}
void warning(std::string_view line) {
  write(stderr, Speaker::this_rank, "warning: ", line);
}
void error(std::string_view line) {
  write(stderr, Speaker::this_rank, "error: ", line);
}
void common_error(std::string_view line) {
  write(stderr, Speaker::all, "error: ", line);
}

}  // namespace penstock::log
