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
  bool is_end(Stage stage) const { return stage.value() == 0 || stage == schedule.last_stage(); }
};

/// What one schedule asks of a persistent buffer of a stage; nothing where it does not need it.
Bytes asked_for(const Sized& sized, BufferKind kind, Stage stage) {
  switch (kind) {
    case BufferKind::gradients:
      return sized.schedule.forward_only ? Bytes{0} : sized.of(kind, stage);
    case BufferKind::tokens:
      return sized.is_end(stage) ? sized.of(kind, stage) * sized.schedule.shape.micro_batches : Bytes{0};
    default:
      return sized.of(kind, stage);
  }
}

void check_same_stages(const std::vector<const Schedule*>& schedules,
                       const std::vector<PerStage<StageBytes>>& stage_bytes) {
  require(!schedules.empty() && schedules.size() == stage_bytes.size(), "{} schedules with the bytes of {}",
          schedules.size(), stage_bytes.size());
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    require(schedules[i]->rank_of == schedules[0]->rank_of,
            "schedules '{}' and '{}' hold their stages on different ranks", schedules[0]->name, schedules[i]->name);
    require(stage_bytes[i].size() == schedules[i]->shape.stages, "bytes of {} stages for the {} of schedule '{}'",
            stage_bytes[i].size(), schedules[i]->shape.stages, schedules[i]->name);
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
      bytes = std::max(bytes, asked_for({*schedules[i], stage_bytes[i]}, kind, stage));
    }
    return bytes;
  };
  Layout layout;
  Bytes workspace{0};
  for (const BufferKind kind : {BufferKind::parameters, BufferKind::gradients, BufferKind::tokens}) {
    for (const Stage stage : all<Stage>(schedules[0]->shape.stages)) {
      if (schedules[0]->rank_of[stage] != rank) continue;
      layout.append({kind, stage, MicroBatch{0}, Slice{0}}, largest(kind, stage));
      workspace = std::max(workspace, largest(BufferKind::workspace, stage));
    }
  }
  layout.append(SymbolicBuffer{}, workspace);
  return layout.result();
}

}  // namespace penstock
