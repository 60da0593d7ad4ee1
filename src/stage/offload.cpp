// SPDX-License-Identifier: Apache-2.0
#include "stage/offload.hpp"

#include <algorithm>
#include <vector>

#include "base/units.hpp"

namespace penstock {
namespace {

std::int64_t bytes_of(const TensorSlot& slot) {
  return round_up(slot.rows * slot.columns * size_of(slot.type), slot_alignment);
}

bool is_key_or_value(std::size_t tensor) {
  return tensor == static_cast<std::size_t>(BlockTensor::key) || tensor == static_cast<std::size_t>(BlockTensor::value);
}

/// Calls visit(slot, whether it is a key or value of a block) for all that is kept; `Kept` is const or not. The logits,
/// whose slots stand beside the others of the head, have a buffer of their own.
template <class Kept, class Visit>
void visit_slots(Kept& kept, const Visit& visit) {
  for (auto& block : kept.blocks) {
    for (std::size_t tensor = 0; tensor < block.size(); ++tensor) {
      if (block[tensor].rows > 0) visit(block[tensor], is_key_or_value(tensor));
    }
  }
  for (auto* slot : {&kept.head.input, &kept.head.norm, &kept.head.mean, &kept.head.inverse}) {
    if (slot->rows > 0) visit(*slot, false);
  }
}

class BufferFiller {
 public:
  void add(TensorSlot& slot) {
    slot.offset = end_;
    end_ += Bytes{bytes_of(slot)};
    layout_.tensors.push_back(slot);
  }
  BufferLayout finish() {
    layout_.bytes = Bytes{round_up(end_.value, buffer_alignment)};
    return std::move(layout_);
  }

 private:
  BufferLayout layout_;
  Bytes end_;
};

}  // namespace

std::set<std::string> choose_offloadable(const KeptLayout& activations, double ratio, StayingTensors stay) {
  std::int64_t kept = 0;
  std::vector<const TensorSlot*> movable;
  visit_slots(activations, [&](const TensorSlot& slot, bool is_key_or_value) {
    kept += bytes_of(slot);
    if (stay == StayingTensors::none || !is_key_or_value) movable.push_back(&slot);
  });
  std::stable_sort(movable.begin(), movable.end(),
                   [](const TensorSlot* a, const TensorSlot* b) { return bytes_of(*a) > bytes_of(*b); });
  double missing = ratio * static_cast<double>(kept);
  std::set<std::string> chosen;
  const TensorSlot* smallest_left = nullptr;
  for (const TensorSlot* slot : movable) {
    const auto bytes = static_cast<double>(bytes_of(*slot));
    if (bytes > missing) {
      smallest_left = slot;
      continue;
    }
    missing -= bytes;
    chosen.insert(slot->name);
  }
  const bool is_nearer = smallest_left != nullptr && static_cast<double>(bytes_of(*smallest_left)) < 2 * missing;
  if (is_nearer) chosen.insert(smallest_left->name);
  return chosen;
}

BufferLayout split_offloadable(KeptLayout& activations, const std::set<std::string>& chosen) {
  BufferFiller staying;
  BufferFiller leaving;
  visit_slots(activations, [&](TensorSlot& slot, bool /*is_key_or_value*/) {
    slot.offloadable = chosen.count(slot.name) > 0;
    (slot.offloadable ? leaving : staying).add(slot);
  });
  activations.buffer = staying.finish();
  return leaving.finish();
}

}  // namespace penstock
