// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>

#include "base/error.hpp"
#include "memory/plan.hpp"

namespace penstock {

namespace {

/// One schedule with the bytes of its stages.
struct Sized {
  const Schedule& schedule;
  const PerStage<StageBytes>& bytes;

  Bytes of(BufferKind kind, Stage stage) const { return bytes[stage][static_cast<std::size_t>(kind)]; }
  bool is_on(Rank rank, Pass pass, Stage stage) const { return schedule.rank_with(pass, stage) == rank; }
  /// Whether the rank works on tokens of the stage in either pass: inputs of the first, targets of the last; both of a
  /// share of the vocabulary, and then of no stage.
  bool has_end_on(Rank rank, Stage stage) const {
    if (schedule.shares_vocabulary) return schedule.is_share(stage) && is_on(rank, Pass::forward, stage);
    const auto is_end = [&](Pass pass) {
      return is_on(rank, pass, stage) && (stage.value() == 0 || stage == schedule.last_stage(pass));
    };
    return is_end(Pass::forward) || is_end(Pass::backward);
  }
};

/// What one schedule asks of a persistent buffer of a stage; nothing where it does not need it.
Bytes asked_for(const Sized& sized, Rank rank, BufferKind kind, Stage stage) {
  if (!sized.bytes.contains(stage)) return Bytes{0};  // of the backward pass, beside a schedule that has none
  if (kind == BufferKind::workspace) return sized.of(kind, stage);
  if (!is_persistent(sized.schedule, kind)) return Bytes{0};
  const bool is_for_training = kind == BufferKind::gradients || kind == BufferKind::optimizer_states;
  if (is_for_training && sized.schedule.forward_only) return Bytes{0};
  if (kind != BufferKind::tokens) return sized.of(kind, stage);
  return sized.has_end_on(rank, stage) ? sized.of(kind, stage) * sized.schedule.shape.micro_batches : Bytes{0};
}

void check_same_stages(const std::vector<const Schedule*>& schedules,
                       const std::vector<PerStage<StageBytes>>& stage_bytes) {
  require(!schedules.empty() && schedules.size() == stage_bytes.size(), "{} schedules with the bytes of {}",
          schedules.size(), stage_bytes.size());
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    require(schedules[i]->rank_of == schedules[0]->rank_of,
            "schedules '{}' and '{}' hold their stages on different ranks", schedules[0]->name, schedules[i]->name);
    require(stage_bytes[i].size() == schedules[i]->most_stages(), "bytes of {} stages for the {} of schedule '{}'",
            stage_bytes[i].size(), schedules[i]->most_stages(), schedules[i]->name);
  }
}

/// Appends buffers one behind the other.
class Layout {
 public:
  void append(const SymbolicBuffer& buffer, Bytes bytes) {
    if (bytes.value == 0) return;
    const Bytes rounded{round_up(bytes.value, buffer_alignment)};
    layout_.buffers.push_back({buffer, layout_.bytes, rounded});
    layout_.bytes += rounded;
  }
  PersistentLayout result() const { return layout_; }

 private:
  PersistentLayout layout_;
};

}  // namespace

PersistentLayout lay_out_persistent(const std::vector<const Schedule*>& schedules, Rank rank,
                                    const std::vector<PerStage<StageBytes>>& stage_bytes) {
  check_same_stages(schedules, stage_bytes);
  const auto largest = [&](BufferKind kind, Stage stage) {
    Bytes bytes{0};
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      bytes = std::max(bytes, asked_for({*schedules[i], stage_bytes[i]}, rank, kind, stage));
    }
    return bytes;
  };
  Layout layout;
  Bytes workspace{0};
  for (const BufferKind kind :
       {BufferKind::parameters, BufferKind::gradients, BufferKind::optimizer_states, BufferKind::tokens}) {
    for (const Stage stage : all<Stage>(schedules[0]->most_stages())) {
      const Sized sized{*schedules[0], stage_bytes[0]};
      if (!sized.is_on(rank, Pass::forward, stage) && !sized.is_on(rank, Pass::backward, stage)) continue;
      layout.append({kind, stage, MicroBatch{0}, Slice{0}}, largest(kind, stage));
      workspace = std::max(workspace, largest(BufferKind::workspace, stage));
    }
  }
  layout.append(SymbolicBuffer{}, workspace);
  return layout.result();
}

}  // namespace penstock
