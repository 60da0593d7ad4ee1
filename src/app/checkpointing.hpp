// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/assembly.hpp"
#include "checkpoint/contents.hpp"
#include "checkpoint/io_thread.hpp"
#include "checkpoint/writer.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "execute/rank_state.hpp"
#include "execute/run_plan.hpp"
#include "optimizer/update.hpp"

namespace penstock {

/// Joins the host stages of a rank with checkpoint files. All functions are collective.
class Checkpointing {
 public:
  /// `data_fingerprint`: of the training data, which a resume compares. The other arguments outlive the object.
  Checkpointing(const Deck& deck, const RunPlan& plan, RankState& state, const Communicator& world,
                std::uint64_t data_fingerprint);

  /// Fills masters, moments and working copies: from a checkpoint as `resume` says ("auto", "none" or a file), or with
  /// initial values. Returns the completed steps.
  /// @throws AgreedError for a damaged checkpoint, or one that does not fit the deck.
  std::int64_t start(const std::string& resume, UpdateRule& rule);

  /// Target positions trained on up to `step`, over all runs since the first step, whose batches may have had other
  /// sizes.
  std::int64_t tokens_after(std::int64_t step) const;

  /// Samples taken up to `step`, over all runs, likewise: where the next step goes on in the data.
  std::int64_t samples_after(std::int64_t step) const;

  /// Takes a snapshot and starts to write it, spread over about `spread`; waits for the one before.
  void save(std::int64_t step, const UpdateRule& rule, Seconds spread);
  /// Waits for the write in flight, and notes what was written.
  void wait();
  /// Runs work that calls HDF5.
  void on_io_thread(const std::function<void()>& work) { io_.run(work); }

 private:
  std::optional<std::string> file_to_resume(const std::string& resume);
  CheckpointHeader load(const std::string& path, UpdateRule& rule);
  void check_compatible(const CheckpointHeader& header, const std::string& path) const;

  const Deck* deck_;
  const RunPlan* plan_;
  RankState* state_;
  const Communicator* world_;
  std::uint64_t data_fingerprint_;
  std::string folder_;
  std::vector<CheckpointDataset> datasets_;
  IoThread io_;
  CheckpointWriter writer_;
  ChunkAssembly assembly_;
  CheckpointHeader origin_;  // of the checkpoint that the run began with; as it is where there was none
  Seconds start_;
};

/// What of a deck is not the checkpoint's, though the states go on with it: sentences (config/resume).
/// @throws Error bad_input for a deck of another model, damaged_input if the checkpoint's own deck is one.
std::vector<std::string> notes_if_compatible(const CheckpointHeader& header, const std::string& path, const Deck& deck);

/// Reads masters from a checkpoint, for generation: the working copies, without moments. Collective.
void load_parameters(const std::string& path, const RunPlan& plan, RankState& state, const Communicator& world,
                     IoThread& io);

}  // namespace penstock
