// SPDX-License-Identifier: Apache-2.0
#include "store/parameter_store.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.hpp"

namespace penstock {
namespace {

constexpr std::string_view purpose = "the working copies of the parameters";

}  // namespace

ParameterStore::ParameterStore(const Communicator& pipeline, SharedStages stages, const StoreOptions& options)
    : layout_{std::move(stages)},
      rank_{pipeline.rank()},
      nodes_{pipeline, options.ranks_per_node},
      memory_{nodes_, layout_.block(rank_), purpose} {
  for (const Stage stage : all<Stage>(layout_.stages().owner.size())) {
    if (layout_.stages().owner[stage] == rank_) new (own_block(stage) + layout_.version_offset(stage).value) Version;
  }
  pipeline.barrier();
  if (nodes_.count() == 1) return;
  remote_ = options.fetch == Fetch::get ? make_get_memory(pipeline, memory_.own())
                                        : make_message_memory(pipeline, memory_.own());
}

std::byte* ParameterStore::own_block(Stage stage) {
  require(layout_.stages().owner[stage] == rank_, "rank {} writes the parameters of stage {}, which rank {} owns",
          rank_, stage, layout_.stages().owner[stage]);
  return memory_.own().data();
}

std::span<std::byte> ParameterStore::own(Stage stage) {
  return {own_block(stage) + layout_.copy_offset(stage).value,
          static_cast<std::size_t>(layout_.stages().bytes[stage].value)};
}

void ParameterStore::publish(Stage stage, std::int64_t version) {
  std::launder(reinterpret_cast<Version*>(own_block(stage) + layout_.version_offset(stage).value))->publish(version);
  if (remote_) remote_->notice_version();
}

const std::byte* ParameterStore::block(Stage stage) const {
  const auto place = nodes_.place(layout_.stages().owner[stage].value());
  return place ? memory_.of(*place).data() : nullptr;
}

void ParameterStore::check_not_stopped(bool is_done, Stage stage) const {
  require(is_done, "the run was stopped while this rank waited for the parameters of stage {}", stage);
}

void ParameterStore::wait_for(Stage stage, std::int64_t version) const {
  const Bytes place = layout_.version_offset(stage);
  if (const std::byte* start = block(stage)) {
    const auto* here = std::launder(reinterpret_cast<const Version*>(start + place.value));
    check_not_stopped(here->wait_for(version, is_stopped_), stage);
  } else {
    const int owner = layout_.stages().owner[stage].value();
    check_not_stopped(remote_->wait_for(owner, place, version, is_stopped_), stage);
  }
}

const std::byte* ParameterStore::direct(Stage stage) const {
  const std::byte* start = block(stage);
  return start == nullptr ? nullptr : start + layout_.copy_offset(stage).value;
}

void ParameterStore::read(Stage stage, Bytes offset, std::span<std::byte> out) const {
  const Bytes size = layout_.stages().bytes[stage];
  require(offset.value >= 0 && offset.value + static_cast<std::int64_t>(out.size()) <= size.value,
          "reading {} bytes from {} on, of the {} of stage {}", out.size(), offset.value, size.value, stage);
  if (const std::byte* copy = direct(stage)) {
    std::copy_n(copy + offset.value, out.size(), out.begin());
  } else {
    const int owner = layout_.stages().owner[stage].value();
    check_not_stopped(remote_->read(owner, layout_.copy_offset(stage) + offset, out, is_stopped_), stage);
  }
}

Bytes ParameterStore::host_bytes(const SharedStages& stages, Rank rank) {
  return SharedLayout{stages}.block(rank);
}

}  // namespace penstock
