// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace penstock {

/// Where a run writes the file `name`.
std::string path_in_run(const Deck& deck, const char* name);

/// Whether a checkpoint is one of those in the run's folder. False also where one of the two cannot be looked at.
bool is_checkpoint_of_run(const Deck& deck, const std::string& checkpoint);

/// Writes summary.json for a rank that ends the job: beside its place, then renamed, since several ranks may. Tells a
/// failure in the log alone.
void leave_summary(const Deck& deck, int rank, const std::string& json);

/// Makes a folder that a RunLock holds ready for a run, copies the log there from now on, and writes the effective
/// deck. Collective. Only once the run is accepted: a start that is refused must leave the files of the run before as
/// they are.
///
/// `continued`: the completed steps of the run in the folder that goes on. Checkpoints of later steps, which would win
/// over those to come, are then set aside in `<folder>/previous.N`, N the first free number, with what else tells of
/// those steps; metrics.csv and deck.yaml are copied there, since the run goes on with its rows up to `continued`. If
/// none goes on, all files of an earlier run are moved there. @throws AgreedError cannot_write.
void start_run_directory(const Deck& deck, std::optional<std::int64_t> continued, const Communicator& world);

}  // namespace penstock
