// SPDX-License-Identifier: Apache-2.0
#include "comm/doorbells.hpp"

#include <algorithm>

namespace penstock {

Doorbells::Doorbells(const Communicator& group)
    : memory_{MachineMemory::of<WakeFlag>(group, group.size())}, place_(static_cast<std::size_t>(group.size())) {
  const auto here = memory_.ranks().all_gather(static_cast<std::int64_t>(group.rank()));
  for (std::size_t place = 0; place < here.size(); ++place) place_[static_cast<std::size_t>(here[place])] = place;
}

bool Doorbells::reach_all() const {
  return std::all_of(place_.begin(), place_.end(), [](const auto& place) { return place.has_value(); });
}

void Doorbells::pause(Backoff& backoff) {
  constexpr Seconds longest_between_looks{2e-3};
  const Seconds length = backoff.next();
  if (length.value <= 0) return;
  // MPI may need several looks at what it was given: after a bell it is asked as often as after a message.
  if (wait_for(own(), reach_all() ? longest_between_looks : length)) backoff.reset();
}

void Doorbells::ring(int rank) {
  if (const auto place = place_[static_cast<std::size_t>(rank)]) raise(flags()[*place]);
}

}  // namespace penstock
