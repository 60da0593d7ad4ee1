// SPDX-License-Identifier: Apache-2.0
//
// The text form of schedules: the notation of PyTorch's pipelining, with `.k` for a slice and the further ops by name
// (doc/schedules.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schedule/action.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// "2F0", "1RECV_B3", "2F0.3", "2W0.3/5", "3OFFLOAD_G", "VALIDATE". The slice is written when there are several or it
/// is not 0, the part of a W where it is not whole.
std::string to_text(const Action& action, std::int32_t slices = 1);

/// A row per rank, a cell per action, in list order.
std::string write_schedule_csv(const Schedule& schedule);

/// Reads a row per rank. Empty cells are bubbles and say nothing; UNSHARD, RESHARD and REDUCE_GRAD are skipped, since
/// parameters stay resident and reductions are derived; `(0F3;7B1)OVERLAP_F_B` is 0F3 followed by 7B1.
///
/// The shape follows from the cells: a stage is on the rank of its forwards; it recomputes if the file has an R of it;
/// a file without any backward is forward_only; a stage's W has as many parts as the largest that is named. Whether
/// embeddings are tied is not in the file. Checks the form only: see validate for the meaning, and complete for what a
/// file of compute actions leaves out.
/// @throws Error damaged_input naming the row and cell (from 1), with what was expected. `name` is the file's, for
/// messages.
Schedule read_schedule_csv(std::string_view text, const std::string& name);

/// The schedule in the file at `path`. @throws Error damaged_input, also if it cannot be read or has more than 64 MiB.
Schedule load_schedule_csv(const std::string& path);

}  // namespace penstock
