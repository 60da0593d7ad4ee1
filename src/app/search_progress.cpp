// SPDX-License-Identifier: Apache-2.0
#include "app/search_progress.hpp"

#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/counted.hpp"

namespace penstock {
namespace {

constexpr const char* emptied_line = "\r\x1b[K";  // to its start, then erase to its end (ECMA-48)

std::string line_of(const PlanResult& result) {
  const SearchCounts& counts = result.counts;
  const std::string best =
      result.best.empty() ? "none fits yet" : fmt::format("best {:.4g} s", result.best[0].step.value);
  return fmt::format("{} of {}, {} simulated, {}", counts.decided(), counted(counts.candidates, "layout"),
                     counts.simulated, best);
}

}  // namespace

SearchProgress::SearchProgress() : is_terminal_{isatty(STDERR_FILENO) == 1} {}

SearchProgress::~SearchProgress() {
  if (has_line_) std::fputs(emptied_line, stderr);
}

void SearchProgress::show(const PlanResult& so_far) {
  if (!is_terminal_ || (has_line_ && now() - last_line_ < Seconds{0.5})) return;
  const std::string line = emptied_line + line_of(so_far);
  std::fputs(line.c_str(), stderr);
  has_line_ = true;
  last_line_ = now();
}

}  // namespace penstock
