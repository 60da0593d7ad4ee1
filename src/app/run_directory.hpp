// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace penstock {

/// Makes the folder of a run. Files of an earlier run that is not to be resumed are not overwritten: they are moved to
/// `<folder>/previous.N`, N the first free number. Returns that folder's path, or "" if there was nothing to move. For
/// one rank.
/// @throws Error of code_of_failed_write if the folder cannot be made or written.
enum class EarlierRun : unsigned char { move_away, keep };
std::string prepare_run_directory(const std::string& folder, EarlierRun earlier);

}  // namespace penstock
