// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.hpp"
#include "plan/search.hpp"

namespace penstock {

/// Shows how far a search is, in one line that overwrites itself, on standard error and only if that is a terminal: at
/// once, then twice a second. The line is gone when the object is.
class SearchProgress {
 public:
  SearchProgress();
  ~SearchProgress();
  SearchProgress(const SearchProgress&) = delete;
  SearchProgress& operator=(const SearchProgress&) = delete;

  void show(const PlanResult& so_far);

 private:
  bool is_terminal_;
  bool has_line_ = false;
  Seconds last_line_;
};

}  // namespace penstock
