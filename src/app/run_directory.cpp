// SPDX-License-Identifier: Apache-2.0
#include "app/run_directory.hpp"

#include <array>
#include <filesystem>

#include "app/text_file.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "config/listing.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 7> run_files{"checkpoints",  "deck.yaml",    "metrics.csv", "run.log",
                                               "simulated.h5", "summary.json", "trace.h5"};

bool has_earlier_run(const fs::path& folder) {
  for (const char* name : {"checkpoints", "metrics.csv"}) {
    if (fs::exists(folder / name)) return true;
  }
  return false;
}

fs::path first_free(const fs::path& folder) {
  for (int number = 1;; ++number) {
    auto candidate = folder / fmt::format("previous.{}", number);
    if (!fs::exists(candidate)) return candidate;
  }
}

}  // namespace

std::string prepare_run_directory(const std::string& folder, EarlierRun earlier) {
  try {
    fs::create_directories(folder);
    if (earlier == EarlierRun::keep || !has_earlier_run(folder)) return {};
    const auto target = first_free(folder);
    fs::create_directory(target);
    for (const char* name : run_files) {
      if (fs::exists(fs::path{folder} / name)) fs::rename(fs::path{folder} / name, target / name);
    }
    return target.string();
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::cannot_write, "output.directory {}: {}; give a folder that can be written", folder,
         error.code().message());
  }
}

std::string path_in_run(const Deck& deck, const char* name) {
  return (fs::path{deck.output.directory} / name).string();
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

void start_run_directory(const Deck& deck, EarlierRun earlier, const Communicator& world) {
  jointly(world, [&] {
    if (world.rank() != 0) return;
    const auto moved = prepare_run_directory(deck.output.directory, earlier);
    log::copy_to_file(path_in_run(deck, "run.log"));
    write_text(path_in_run(deck, "deck.yaml"), effective_deck(deck));
    if (!moved.empty()) log::note("the files of an earlier run are now in {}", moved);
  });
}

}  // namespace penstock
