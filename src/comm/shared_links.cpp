// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_links.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace penstock {
namespace {

std::int64_t to_nanoseconds(Seconds seconds) {
  return static_cast<std::int64_t>(std::ceil(seconds.value * 1e9));
}

}  // namespace

SharedLinks::SharedLinks(const Communicator& group, std::int32_t links)
    : memory_{MachineMemory::of<FreeAt>(group, links)}, free_at_{memory_.objects<FreeAt>()} {}

Seconds SharedLinks::take(std::int32_t link, Seconds seconds) {
  require(link >= 0 && static_cast<std::size_t>(link) < free_at_.size(), "link {} of {} shared ones", link,
          free_at_.size());
  FreeAt& free_at = free_at_[static_cast<std::size_t>(link)];
  std::int64_t free = free_at.load();
  std::int64_t start = 0;
  do {
    start = std::max(to_nanoseconds(now()), free);
  } while (!free_at.compare_exchange_weak(free, start + to_nanoseconds(seconds)));
  return Seconds{static_cast<double>(start) * 1e-9};
}

}  // namespace penstock
