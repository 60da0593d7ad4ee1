// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace penstock {

/// Makes the folder of a run. Files of an earlier run that is not to be resumed are not overwritten: they are moved to
/// `<folder>/previous.N`, N the first free number. Returns that folder's path, or "" if there was nothing to move. For
/// one rank.
/// @throws Error cannot_write if the folder cannot be made or written.
enum class EarlierRun : unsigned char { move_away, keep };
std::string prepare_run_directory(const std::string& folder, EarlierRun earlier);

/// Where a run writes the file `name`.
std::string path_in_run(const Deck& deck, const char* name);

/// Writes summary.json for a rank that ends the job: beside its place, then renamed, since several ranks may. Tells a
/// failure in the log alone.
void leave_summary(const Deck& deck, int rank, const std::string& json);

/// Makes the folder on the first rank, copies the log there from now on, and writes the effective deck. Collective.
/// Only once the run is accepted: a start that is refused must leave the files of the run before as they are.
void start_run_directory(const Deck& deck, EarlierRun earlier, const Communicator& world);

}  // namespace penstock
