// SPDX-License-Identifier: Apache-2.0
#include "app/checkpointing.hpp"

#include <filesystem>
#include <utility>

#include "app/commands.hpp"
#include "app/kill_place.hpp"
#include "base/log.hpp"
#include "checkpoint/reader.hpp"
#include "comm/agreement.hpp"
#include "config/listing.hpp"
#include "config/reader.hpp"
#include "config/resume.hpp"
#include "execute/training_work.hpp"
#include "model/parameters.hpp"
#include "optimizer/reduce.hpp"

namespace penstock {
namespace {

/// What must agree for the states of a checkpoint to make sense.
std::uint64_t hash_of(const std::vector<CheckpointDataset>& datasets) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a, 64 bits
  for (const auto& dataset : datasets) {
    for (const char character : fmt::format("{} {} {};", dataset.name, dataset.rows, dataset.columns)) {
      hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3U;
    }
  }
  return hash;
}

/// The states of this rank's pieces, by data set, each with its first element there.
template <class Visit>
void for_each_state(const RunPlan& plan, RankState& state, const Visit& visit) {
  const auto count = static_cast<std::int32_t>(parameters_of(plan.shape.model).size());
  for (const auto& stage : state.stages()) {
    if (!stage) continue;
    for (const auto& owned : stage->state()) {
      const auto& parameter = stage->shape().parameters[static_cast<std::size_t>(owned.piece.parameter)];
      const auto index = [&](StateKind kind) { return dataset_index(kind, parameter.canonical, count); };
      auto piece = owned.piece;
      piece.first += parameter.first;
      visit(index(StateKind::parameter), piece, owned.master);
      visit(index(StateKind::first_moment), piece, owned.first_moment);
      visit(index(StateKind::second_moment), piece, owned.second_moment);
    }
  }
}

void complete_working_copies(const RunPlan& plan, RankState& state) {
  for (const auto& stage : state.stages()) {
    if (!stage) continue;
    stage->refresh_working_copy(state.cpu_workers());
    gather_working_copy(*stage, state.groups().replicas);
  }
  share_tied_table(plan, state.stages(), state.groups().pipeline);
}

}  // namespace

Checkpointing::Checkpointing(const Deck& deck, const RunPlan& plan, RankState& state, const Communicator& world,
                             std::uint64_t data_fingerprint)
    : deck_{&deck},
      plan_{&plan},
      state_{&state},
      world_{&world},
      data_fingerprint_{data_fingerprint},
      folder_{(std::filesystem::path{deck.output.directory} / "checkpoints").string()},
      datasets_{datasets_of(plan.shape.model)},
      writer_{io_, world, {folder_, deck.output.checkpoint.keep}, kill_before_rename(deck, world.rank())},
      start_{now()} {}

std::int64_t Checkpointing::start(const std::string& resume, UpdateRule& rule) {
  const auto path = file_to_resume(resume);
  if (path) {
    origin_ = load(*path, rule);
  } else {
    // Minutes, of large models: whoever waits should know for what.
    log::note("initializing {} parameters", parameter_count(plan_->shape.model));
    for (const auto& stage : state_->stages()) {
      if (stage) stage->initialize(deck_->training.seed, state_->cpu_workers());
    }
  }
  complete_working_copies(*plan_, *state_);
  return origin_.step;
}

std::optional<std::string> Checkpointing::file_to_resume(const std::string& resume) {
  if (resume == "none") return std::nullopt;
  if (resume != "auto") return resume;
  std::optional<std::string> latest;
  jointly(*world_, [&] { io_.run([&] { latest = find_latest(*world_, folder_); }); });
  if (!latest) log::note("resume: no checkpoint in {}: starting from the beginning", folder_);
  return latest;
}

CheckpointHeader Checkpointing::load(const std::string& path, UpdateRule& rule) {
  auto header = jointly(*world_, [&] {
    CheckpointHeader found;
    io_.run([&] { found = read_checkpoint_header(path); });
    check_compatible(found, path);
    std::vector<LoadedPiece> pieces;
    for_each_state(*plan_, *state_, [&](std::int32_t dataset, const ShardPiece& piece, float* data) {
      pieces.push_back({dataset, piece.first, piece.count, data});
    });
    io_.run([&] { load_checkpoint(path, datasets_, pieces); });
    return found;
  });
  rule.restore(header.adam_steps);
  log::note("resume: {} after step {}", path, header.step);
  return header;
}

void Checkpointing::check_compatible(const CheckpointHeader& header, const std::string& path) const {
  const auto notes = notes_if_compatible(header, path, *deck_);
  if (world_->rank() != 0) return;
  for (const auto& line : notes) log::warning("resume: {}", line);
  if (header.data_fingerprint != data_fingerprint_) {
    log::warning("resume: the files of data.train have changed since {} was written: the samples are others", path);
  }
}

std::int64_t Checkpointing::tokens_after(std::int64_t step) const {
  return origin_.tokens + (step - origin_.step) * tokens_per_step(*deck_);
}

std::int64_t Checkpointing::samples_after(std::int64_t step) const {
  return origin_.data_position + (step - origin_.step) * plan_->shape.global_batch;
}

void Checkpointing::save(std::int64_t step, const UpdateRule& rule, Seconds spread) {
  wait();
  CheckpointContents contents;
  contents.datasets = datasets_;
  contents.header.step = step;
  contents.header.adam_steps = rule.adam_steps();
  contents.header.tokens = tokens_after(step);
  contents.header.data_position = samples_after(step);
  contents.header.data_fingerprint = data_fingerprint_;
  contents.header.seed = deck_->training.seed;
  contents.header.program_version = program_version();
  contents.header.deck = effective_deck(*deck_);
  contents.header.model_hash = hash_of(datasets_);
  contents.header.wall_seconds = origin_.wall_seconds + (now() - start_).value;
  std::vector<SavedPiece> pieces;
  for_each_state(*plan_, *state_, [&](std::int32_t dataset, const ShardPiece& piece, const float* data) {
    pieces.push_back({dataset, piece.first, piece.count, data});
  });
  if (plan_->training.schedule.shares_vocabulary) pieces = assembly_.whole_chunks(*world_, datasets_, pieces);
  writer_.start(
      contents, pieces,
      [this](std::int64_t count, const std::function<void(std::int64_t)>& body) {
        state_->cpu_workers().for_each(count, body);
      },
      spread);
}

void Checkpointing::wait() {
  const auto report = writer_.wait();
  if (!report) return;
  log::note("checkpoint {}: {} in {:.2f} s", report->path, to_text(report->bytes), report->seconds.value);
}

std::vector<std::string> notes_if_compatible(const CheckpointHeader& header, const std::string& path,
                                             const Deck& deck) {
  auto findings = resume_compatibility(parse_deck(header.deck, path), deck);
  std::string text;
  for (const auto& line : findings.refusals) text += "\n  " + line;
  if (!text.empty()) fail(ExitCode::bad_input, "{} cannot be used with this deck:{}", path, text);
  if (header.model_hash != hash_of(datasets_of(model_spec(deck)))) {
    fail(ExitCode::damaged_input, "{} holds the parameters of another model than its own deck says", path);
  }
  return std::move(findings.notes);
}

void load_parameters(const std::string& path, const RunPlan& plan, RankState& state, const Communicator& world,
                     IoThread& io) {
  const auto datasets = datasets_of(plan.shape.model);
  const auto parameters = static_cast<std::int32_t>(parameters_of(plan.shape.model).size());
  jointly(world, [&] {
    std::vector<LoadedPiece> pieces;
    for_each_state(plan, state, [&](std::int32_t dataset, const ShardPiece& piece, float* data) {
      if (dataset < parameters) pieces.push_back({dataset, piece.first, piece.count, data});
    });
    io.run([&] { load_checkpoint(path, datasets, pieces); });
  });
  complete_working_copies(plan, state);
}

}  // namespace penstock
