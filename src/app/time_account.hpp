// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "comm/communicator.hpp"

namespace penstock {

/// What a rank's time went into.
enum class Activity : std::uint8_t {
  compute,  ///< the compute lane's busy time within steps
  waiting,  ///< the rest of the steps: bubble, messages, also inside actions of the compute lane, CPU stages
  data,     ///< reading and uploading batches
  validation,
  checkpoint,  ///< taking snapshots, and waiting for earlier writes
  other        ///< between the steps: metrics, agreement of the ranks
};
inline constexpr int activity_count = 6;
std::string_view name_of(Activity activity);

/// Adds up seconds by activity, and shows their minimum, average and maximum over ranks.
class TimeAccount {
 public:
  void add(Activity activity, Seconds seconds) { seconds_[static_cast<std::size_t>(activity)] += seconds; }
  /// The table for the log and the summary's numbers; the same on all ranks. Collective.
  struct Row {
    Activity activity = Activity::compute;
    double minimum = 0;
    double average = 0;
    double maximum = 0;
  };
  std::array<Row, activity_count> over_ranks(const Communicator& world) const;

 private:
  std::array<Seconds, activity_count> seconds_{};
};

std::string to_text(const std::array<TimeAccount::Row, activity_count>& rows);

}  // namespace penstock
