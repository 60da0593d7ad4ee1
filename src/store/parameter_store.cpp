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
  if (nodes_.count() > 1) {
    fail(ExitCode::bad_input,
         "memory.parameters: host needs the ranks of a pipeline on one node so far; these are on {}", nodes_.count());
  }
  for (const Stage stage : all<Stage>(layout_.stages().owner.size())) {
    if (layout_.stages().owner[stage] == rank_) new (own_block(stage) + layout_.version_offset(stage).value) Version;
  }
  pipeline.barrier();
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
}

const std::byte* ParameterStore::block(Stage stage) const {
  const auto place = nodes_.place(layout_.stages().owner[stage].value());
  return place ? memory_.of(*place).data() : nullptr;
}

void ParameterStore::wait_for(Stage stage, std::int64_t version) const {
  const std::byte* place = block(stage) + layout_.version_offset(stage).value;
  const bool has_come = std::launder(reinterpret_cast<const Version*>(place))->wait_for(version, is_stopped_);
  require(has_come, "the wait for version {} of the parameters of stage {} was stopped", version, stage);
}

const std::byte* ParameterStore::direct(Stage stage) const {
  const std::byte* start = block(stage);
  return start == nullptr ? nullptr : start + layout_.copy_offset(stage).value;
}

void ParameterStore::read(Stage stage, Bytes offset, std::span<std::byte> out) const {
  const Bytes size = layout_.stages().bytes[stage];
  require(offset.value >= 0 && offset.value + static_cast<std::int64_t>(out.size()) <= size.value,
          "reading {} bytes from {} on, of the {} of stage {}", out.size(), offset.value, size.value, stage);
  std::copy_n(direct(stage) + offset.value, out.size(), out.begin());
}

Bytes ParameterStore::host_bytes(const SharedStages& stages, Rank rank) {
  return SharedLayout{stages}.block(rank);
}

}  // namespace penstock
