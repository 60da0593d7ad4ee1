// SPDX-License-Identifier: Apache-2.0
#include "execute/parameter_fetch.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"
#include "device/joined.hpp"
#include "execute/host_stages.hpp"
#include "schedule/text.hpp"

namespace penstock {
namespace {

/// Where each parameter of the model is stepped, by canonical index.
std::map<std::int32_t, FetchedPiece> stepped_parameters(const RunPlan& plan) {
  std::map<std::int32_t, FetchedPiece> found;
  for (const Stage stage : all<Stage>(plan.training.schedule.ranks(Pass::backward).size())) {
    const HostStageShape shape = host_stage_shape(plan, stage, 0);
    for (const HostParameter& entry : shape.parameters) {
      if (!entry.mastered) continue;
      const Bytes bytes{entry.parameter.size() * size_of(shape.storage)};
      found[entry.canonical] = {stage, entry.working_offset, Bytes{0}, bytes};
    }
  }
  return found;
}

/// Appends a piece, or lengthens the last one where it lies behind that in both places. What is between two tensors
/// is nobody's.
void append(std::vector<FetchedPiece>& pieces, const FetchedPiece& piece) {
  if (!pieces.empty()) {
    FetchedPiece& last = pieces.back();
    if (last.source == piece.source && piece.from - last.from == piece.to - last.to && piece.from > last.from) {
      last.bytes = piece.from - last.from + piece.bytes;
      return;
    }
  }
  pieces.push_back(piece);
}

PerStage<std::vector<FetchedPiece>> pieces_of_rank(const RunPlan& plan, Rank rank, Pass pass) {
  const Schedule& schedule = plan.training.schedule;
  PerStage<std::vector<FetchedPiece>> pieces(schedule.most_stages());
  for (const Stage stage : all<Stage>(pieces.size())) {
    if (schedule.rank_with(pass, stage) == rank) pieces[stage] = fetched_pieces(plan, pass, stage);
  }
  return pieces;
}

}  // namespace

std::vector<FetchedPiece> fetched_pieces(const RunPlan& plan, Pass pass, Stage stage) {
  const bool is_whole = pass == Pass::backward || !plan.training.schedule.backward;
  if (is_whole) return {{stage, Bytes{0}, Bytes{0}, host_stage_shape(plan, stage, 0).working_bytes}};
  const StageShape& shape = plan.training.stages[stage];
  const auto slots = StageMath{shape}.layout(BufferKind::parameters).tensors;
  const auto parameters = parameters_of_stage(shape.model, shape.begin, shape.end, shape.first, shape.last);
  const std::int32_t begin = canonical_begin(shape.model, shape.begin);
  const auto stepped = stepped_parameters(plan);
  std::vector<FetchedPiece> pieces;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool is_table = parameters[i].role == ParameterRole::token_embedding;  // the first of all
    FetchedPiece piece = stepped.at(is_table ? 0 : begin + static_cast<std::int32_t>(i));
    piece.to = slots[i].offset;
    append(pieces, piece);
  }
  return pieces;
}

ParameterFetch::ParameterFetch(const RunPlan& plan, Rank rank, const PerStage<std::unique_ptr<HostStage>>& stages,
                               ParameterStore* store)
    : stages_{stages},
      store_{store},
      forward_{pieces_of_rank(plan, rank, Pass::forward)},
      backward_{pieces_of_rank(plan, rank, Pass::backward)} {}

void ParameterFetch::publish(Stage stage, std::int64_t step) const {
  if (store_ != nullptr) store_->publish(stage, step);
}

/// The wait is no part of the copy: its time is not the lane's.
void ParameterFetch::wait_for_versions(const std::vector<FetchedPiece>& pieces, const CopyPlace& place,
                                       std::vector<Event>& after) const {
  std::vector<Stage> sources;
  sources.reserve(pieces.size());
  for (const FetchedPiece& piece : pieces) sources.push_back(piece.source);
  const auto wait = [store = store_, sources = std::move(sources), version = expected_] {
    for (const Stage source : sources) store->wait_for(source, version);
  };
  place.queue->submit(std::exchange(after, {}), wait);
}

/// Queues one piece behind `after`.
Event ParameterFetch::bring(const FetchedPiece& piece, const CopyPlace& place, std::vector<Event> after) const {
  std::byte* to = place.data + piece.to.value;
  const std::byte* copy =
      store_ != nullptr ? store_->direct(piece.source) : stages_[piece.source]->working_copy().data();
  if (copy != nullptr) {
    return place.device->copy_to_device(*place.queue, std::move(after), to, copy + piece.from.value, piece.bytes);
  }
  const auto read = [store = store_, piece, to] {
    store->read(piece.source, piece.from, {to, static_cast<std::size_t>(piece.bytes.value)});
  };
  return place.queue->submit(std::move(after), read);
}

Event ParameterFetch::fetch(const Action& action, const CopyPlace& place, std::vector<Event> after) const {
  const auto& pieces = (pass_of(action.op) == Pass::forward ? forward_ : backward_)[action.stage];
  if (store_ != nullptr) wait_for_versions(pieces, place, after);
  std::vector<Event> copies;
  for (const FetchedPiece& piece : pieces) {
    require(piece.to + piece.bytes <= place.bytes, "{} copies to byte {}, but its device buffer has {}",
            to_text(action), (piece.to + piece.bytes).value, place.bytes.value);
    copies.push_back(bring(piece, place, std::exchange(after, {})));
  }
  return copies.size() == 1 ? copies.front() : joined(copies.front(), copies.back());
}

}  // namespace penstock
