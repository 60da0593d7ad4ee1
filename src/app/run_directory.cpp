// SPDX-License-Identifier: Apache-2.0
#include "app/run_directory.hpp"

#include <array>
#include <filesystem>
#include <system_error>
#include <vector>

#include "app/text_file.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/folder.hpp"
#include "comm/agreement.hpp"
#include "config/listing.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> files_of_the_end{"simulated.h5", "summary.json", "trace.h5"};
/// What a run that goes on continues or writes anew.
constexpr std::array<const char*, 2> files_of_all_steps{"deck.yaml", "metrics.csv"};

bool has_earlier_run(const fs::path& folder) {
  return fs::exists(folder / "checkpoints") || fs::exists(folder / "metrics.csv");
}

fs::path make_first_free(const fs::path& folder) {
  for (int number = 1;; ++number) {
    auto candidate = folder / fmt::format("previous.{}", number);
    if (fs::create_directory(candidate)) return candidate;
  }
}

void move_if_there(const fs::path& folder, const char* name, const fs::path& target) {
  if (fs::exists(folder / name)) fs::rename(folder / name, target / name);
}

/// Sets aside all files of an earlier run. Returns what is to be told of it.
std::string set_run_aside(const fs::path& folder) {
  if (!has_earlier_run(folder)) return {};
  const auto target = make_first_free(folder);
  for (const char* name : files_of_the_end) move_if_there(folder, name, target);
  for (const char* name : files_of_all_steps) move_if_there(folder, name, target);
  for (const char* name : {"checkpoints", "run.log"}) move_if_there(folder, name, target);
  return fmt::format("the files of an earlier run are now in {}", target.string());
}

/// Sets aside what an earlier run did behind `step`. Returns what is to be told of it. The newest checkpoints go first:
/// if this is interrupted, the ones that are left are still those up to some step.
std::string set_later_steps_aside(const fs::path& folder, std::int64_t step) {
  auto later = list_checkpoints((folder / "checkpoints").string());
  std::erase_if(later, [&](const CheckpointFile& file) { return file.step <= step; });
  if (later.empty()) return {};
  const auto target = make_first_free(folder);
  for (const char* name : files_of_all_steps) {
    if (fs::exists(folder / name)) fs::copy_file(folder / name, target / name);
  }
  for (const char* name : files_of_the_end) move_if_there(folder, name, target);
  fs::create_directory(target / "checkpoints");
  for (const auto& file : later) fs::rename(file.path, target / "checkpoints" / fs::path{file.path}.filename());
  return fmt::format(
      "the run goes on after step {}: what was trained after it before ({} up to step {}, the rows of metrics.csv) is "
      "now in {}",
      step, counted(static_cast<std::int64_t>(later.size()), "checkpoint"), later.front().step, target.string());
}

std::string set_aside(const Deck& deck, std::optional<std::int64_t> continued) {
  const fs::path folder{deck.output.directory};
  try {
    return continued ? set_later_steps_aside(folder, *continued) : set_run_aside(folder);
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::cannot_write, "output.directory {} could not be written: {}; give a folder that can be",
         folder.string(), error.code().message());
  }
}

}  // namespace

std::string path_in_run(const Deck& deck, const char* name) {
  return (fs::path{deck.output.directory} / name).string();
}

bool is_checkpoint_of_run(const Deck& deck, const std::string& checkpoint) {
  std::error_code is_not_there;
  return fs::equivalent(fs::absolute(checkpoint).parent_path(), path_in_run(deck, "checkpoints"), is_not_there);
}

void leave_summary(const Deck& deck, int rank, const std::string& json) {
  const auto path = path_in_run(deck, "summary.json");
  const auto own = fmt::format("{}.rank{}", path, rank);
  try {
    write_text(own, json);
    fs::rename(own, path);
  } catch (const std::exception& error) {
    log::warning("{}", error.what());
  }
}

void start_run_directory(const Deck& deck, std::optional<std::int64_t> continued, const Communicator& world) {
  jointly(world, [&] {
    if (world.rank() != 0) return;
    const auto told = set_aside(deck, continued);
    log::copy_to_file(path_in_run(deck, "run.log"));
    write_text(path_in_run(deck, "deck.yaml"), effective_deck(deck));
    if (!told.empty()) log::note("{}", told);
  });
}

}  // namespace penstock
