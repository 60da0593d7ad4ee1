// SPDX-License-Identifier: Apache-2.0
#include "app/training_data.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "data/tokenizer.hpp"

namespace penstock {
namespace {

void note_summary(const DataSummary& summary) {
  log::note("{}", description_of(summary));
  for (const auto& line : summary.notes) log::note("{}", line);
  for (const auto& line : summary.warnings) log::warning("{}", line);
}

}  // namespace

TrainingData open_training_data(const Deck& deck, CountEntropies entropies) {
  const auto vocabulary = model_spec(deck).vocabulary;
  auto train = open_data(deck.data.train, {.key = "data.train", .tokenizer = deck.data.tokenizer});
  if (train.summary.kind == DataKind::text && vocabulary < ByteTokenizer::size) {
    fail(ExitCode::bad_input,
         "model.vocabulary is {}, but the tokenizer of text, bytes, has {} tokens: leave it out, or set {} or more",
         vocabulary, ByteTokenizer::size, ByteTokenizer::size);
  }
  TrainingData data{std::move(train.summary),
                    TrainingSamples{train.tokens, deck.training.sequence, deck.training.seed, vocabulary, "data.train"},
                    {},
                    {},
                    {}};
  if (deck.data.validation.empty()) return data;
  auto validation = open_data(deck.data.validation, {.key = "data.validation", .tokenizer = deck.data.tokenizer});
  data.validation_summary = std::move(validation.summary);
  data.validation.emplace(validation.tokens, deck.training.sequence, vocabulary, "data.validation");
  if (entropies == CountEntropies::yes) data.entropies = entropies_of(*validation.tokens, vocabulary);
  return data;
}

void note_data(const TrainingData& data) {
  note_summary(data.train_summary);
  log::note("data.train: {}", data.train.description());
  if (!data.validation) return;
  note_summary(*data.validation_summary);
  log::note("data.validation: {}", data.validation->description());
  if (data.entropies) log::note("data.validation: {}", to_text(*data.entropies));
  for (const auto& path : shared_files(data.train_summary, *data.validation_summary)) {
    log::warning("{} is in data.train and in data.validation: the validation loss will flatter the model", path);
  }
}

TrainingData open_training_data(const Deck& deck, const Communicator& world) {
  auto data = jointly(
      world, [&] { return open_training_data(deck, world.rank() == 0 ? CountEntropies::yes : CountEntropies::no); });
  if (world.rank() == 0) note_data(data);
  return data;
}

}  // namespace penstock
