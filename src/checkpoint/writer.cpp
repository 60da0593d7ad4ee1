// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/writer.hpp"

#include <chrono>
#include <exception>
#include <utility>

#include "base/log.hpp"

namespace penstock {

CheckpointWriter::CheckpointWriter(IoThread& io, const Communicator& group, CheckpointFolder folder,
                                   BeforeRename before_rename)
    : io_{io}, group_{group.duplicate()}, folder_{std::move(folder)}, before_rename_{std::move(before_rename)} {}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::warning("the last checkpoint was not written: {}", error.what());
  }
}

void CheckpointWriter::start(const CheckpointContents& contents, const std::vector<SavedPiece>& pieces,
                             const ForEach& for_each, Seconds spread) {
  wait();
  contents_ = contents;
  snapshot_.take(pieces, for_each);
  pacer_.begin(Snapshot::bytes_of(pieces), spread);
  write_ = io_.start([this] {
    report_ = write_checkpoint(
        group_, folder_, contents_, snapshot_.pieces(), [this](Bytes part) { pacer_.wrote(part); }, before_rename_);
  });
}

bool CheckpointWriter::is_writing() const {
  return write_.valid() && write_.wait_for(std::chrono::seconds{0}) != std::future_status::ready;
}

std::optional<CheckpointReport> CheckpointWriter::wait() {
  pacer_.hurry();
  if (write_.valid()) write_.get();
  return std::exchange(report_, std::nullopt);
}

}  // namespace penstock
