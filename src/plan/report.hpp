// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/search.hpp"

namespace penstock {

/// "slimpipe v=5 n=16": the kind with the options that it has.
std::string schedule_text(const ModelledRun& run);

/// "pipeline 8 x tensor 4 x context 2 x data 4, micro-batch 1".
std::string layout_text(const ModelledRun& run);

/// "selective, offload 50 %": what a forward keeps, and where.
std::string memory_text(const ModelledRun& run);

/// Why `layout` is behind `best`: "+4.2 %: work +3.1 %, waits +1.0 %, optimizer +0.1 %", shares of the best step.
std::string reason_text(const PlannedLayout& best, const PlannedLayout& layout);

/// A row for each layout found, with why it lost; and what became of the candidates.
std::string to_text(const PlanResult& result);

/// Where nothing fits: the layout that comes closest, how far it is off, and what would fit (what_would_fit; may be
/// empty).
std::string no_fit_text(const PlanRequest& request, const PlanResult& result, const std::string& would_fit);

}  // namespace penstock
