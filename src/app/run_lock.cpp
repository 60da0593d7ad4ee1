// SPDX-License-Identifier: Apache-2.0
#include "app/run_lock.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "app/run_directory.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"

namespace penstock {
namespace {

enum class Lock : unsigned char { held, of_another, not_supported };

/// A process that was killed a moment ago holds its locks until the system has taken back its memory.
constexpr std::chrono::milliseconds patience{2000};
constexpr std::chrono::milliseconds between_tries{50};

Lock lock(int file) {
  for (auto waited = std::chrono::milliseconds{0};; waited += between_tries) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return Lock::held;
    if (errno != EWOULDBLOCK && errno != EINTR) return Lock::not_supported;
    if (waited >= patience) return Lock::of_another;
    std::this_thread::sleep_for(between_tries);
  }
}

Descriptor open_lock_file(const std::string& folder, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Descriptor file;
  if (!error) {
    file.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file) error = {errno, std::system_category()};
  }
  if (error) {
    fail(ExitCode::cannot_write, "output.directory {} could not be written: {}; give a folder that can be", folder,
         error.message());
  }
  return file;
}

std::string own_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} on host {}", ::getpid(), host.data());
}

/// What own_name of the other run has written, or will have in a moment.
std::string holder_of(int file) {
  std::array<char, 512> text{};
  const auto count = ::pread(file, text.data(), text.size(), 0);
  const std::string_view line{text.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
  const auto name = line.substr(0, line.find('\n'));
  return name.empty() ? "another process" : std::string{name};
}

/// For people and for the refusal of a second run; that it cannot be written costs the lock nothing.
void write_holder(int file, const std::string& text, const std::string& path) {
  const auto written = ::ftruncate(file, 0) == 0 ? ::pwrite(file, text.data(), text.size(), 0) : -1;
  if (written != static_cast<ssize_t>(text.size())) log::warning("{}", system_error_text("writing " + path, errno));
}

Descriptor take(const std::string& folder, const std::string& path) {
  auto file = open_lock_file(folder, path);
  switch (lock(file.get())) {
    case Lock::held:
      write_holder(file.get(), own_name() + "\n", path);
      return file;
    case Lock::not_supported:
      log::warning("{}; nothing keeps a second run out of this folder", system_error_text("locking " + path, errno));
      return {};
    case Lock::of_another:
      fail(ExitCode::bad_input,
           "output.directory {}: another run writes there, its first rank is {}; wait for its end, ask it to stop with "
           "a file {}/stop, or give this run another folder",
           folder, holder_of(file.get()), folder);
  }
  return {};
}

}  // namespace

RunLock::RunLock(const Deck& deck, const Communicator& world) {
  jointly(world, [&] {
    if (world.rank() == 0) file_ = take(deck.output.directory, path_in_run(deck, "run.lock"));
  });
}

RunLock::~RunLock() {
  if (file_ && ::ftruncate(file_.get(), 0) != 0) log::warning("emptying run.lock: error {}", errno);
}

}  // namespace penstock
