// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "data/entropy.hpp"
#include "data/open.hpp"
#include "data/samples.hpp"

namespace penstock {

/// The data of a run, opened on this rank.
struct TrainingData {
  DataSummary train_summary;
  TrainingSamples train;
  std::optional<DataSummary> validation_summary;
  std::optional<ValidationSamples> validation;
  std::optional<Entropies> entropies;  ///< of the validation stream, on the first rank
};

enum class CountEntropies : bool { no, yes };

/// Opens what the deck names. @throws Error bad_input for paths and for data that are too short, damaged_input for what
/// the files hold
TrainingData open_training_data(const Deck& deck, CountEntropies entropies);

/// Tells the user what was found: files, tokens, samples; files passed over, and those that are in both lists.
void note_data(const TrainingData& data);

/// Opens what the deck names on every rank; the first rank notes what was found. Collective.
TrainingData open_training_data(const Deck& deck, const Communicator& world);

}  // namespace penstock
