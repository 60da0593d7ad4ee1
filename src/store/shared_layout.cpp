// SPDX-License-Identifier: Apache-2.0
#include "store/shared_layout.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr std::int64_t version_spacing = 64;  // a cache line: who waits for one stage does not slow the others down

std::int64_t to_pages(std::int64_t bytes) {
  return round_up(bytes, sysconf(_SC_PAGESIZE));
}

}  // namespace

SharedLayout::SharedLayout(SharedStages stages) : stages_{std::move(stages)} {
  const std::int32_t count = stages_.owner.size();
  require(stages_.bytes.size() == count, "{} stages have an owner, {} a size", count, stages_.bytes.size());
  Rank last{-1};
  for (const Rank owner : stages_.owner) last = std::max(last, owner);
  PerRank<std::int32_t> owned(last.value() + 1, 0);
  for (const Stage stage : all<Stage>(count)) place_.push_back(owned[stages_.owner[stage]]++);
  for (const std::int32_t number : owned) block_.push_back(Bytes{to_pages(number * version_spacing)});
  for (const Stage stage : all<Stage>(count)) {
    Bytes& end = block_[stages_.owner[stage]];
    copy_offset_.push_back(end);
    end += Bytes{to_pages(stages_.bytes[stage].value)};
  }
}

Bytes SharedLayout::block(Rank rank) const {
  return block_.contains(rank) ? block_[rank] : Bytes{0};
}

Bytes SharedLayout::version_offset(Stage stage) const {
  return Bytes{place_[stage] * version_spacing};
}

}  // namespace penstock
