// SPDX-License-Identifier: Apache-2.0
#include "app/metrics.hpp"

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

namespace penstock {
namespace {

/// The rows of an earlier file whose step is at most `completed_steps`; a last line that was cut off is dropped.
std::vector<std::string> rows_to_keep(const std::string& path, std::int64_t completed_steps) {
  std::vector<std::string> rows;
  std::ifstream file{path};
  std::string line;
  if (!file || !std::getline(file, line) || line != MetricsFile::header) return rows;
  while (std::getline(file, line) && !file.eof()) {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
    if (error != std::errc{} || step > completed_steps) break;
    rows.push_back(line);
  }
  return rows;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t completed_steps) : path_{path} {
  const auto rows = rows_to_keep(path, completed_steps);
  file_.open(path, std::ios::trunc);
  if (!file_) throw Error{ExitCode::cannot_write, system_error_text("writing " + path, errno)};
  file_ << header << '\n';
  for (const auto& row : rows) file_ << row << '\n';
  file_.flush();
}

void MetricsFile::write(const StepMetrics& row) {
  const auto learning =
      row.simulated_seconds ? ",," : fmt::format("{},{},{}", row.loss, row.gradient_norm, row.learning_rate);
  file_ << fmt::format("{},{},{},{},{},{},{},{},{}\n", row.step, row.tokens, learning, row.step_seconds,
                       row.tokens_per_second, row.bubble_fraction, row.peak_device_bytes,
                       row.validation_loss ? fmt::format("{}", *row.validation_loss) : "", row.skipped ? 1 : 0);
  file_.flush();
  if (!file_) throw Error{ExitCode::cannot_write, system_error_text("writing " + path_, errno)};
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) {
    fail(ExitCode::cannot_write,
         "writing {}: it is no longer there; leave the folder of a run where it is for as long as the run goes on",
         path_);
  }
}

}  // namespace penstock
