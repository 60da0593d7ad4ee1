// SPDX-License-Identifier: Apache-2.0
#include "comm/posted_messages.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/handles.hpp"
#include "comm/mpi_error.hpp"
#include "comm/pieces.hpp"

namespace penstock {
PostedMessages::PostedMessages(const Communicator& communicator, Bytes largest_piece)
    : communicator_{handle_of(communicator)}, largest_piece_{largest_piece.value} {
  require(largest_piece_ >= 1 && largest_piece_ <= std::int64_t{1} << 30, "messages in pieces of {} bytes",
          largest_piece_);
}

void PostedMessages::post_piece(Message& message, std::int64_t offset, int bytes, MPI_Request& request) const {
  if (message.direction == Direction::send) {
    check_mpi(MPI_Isend(message.source + offset, bytes, MPI_BYTE, message.peer, message.tag, communicator_, &request),
              fmt::format("sending to rank {}", message.peer));
  } else {
    check_mpi(
        MPI_Irecv(message.destination + offset, bytes, MPI_BYTE, message.peer, message.tag, communicator_, &request),
        fmt::format("receiving from rank {}", message.peer));
  }
}

bool PostedMessages::post(const std::shared_ptr<Message>& message) {
  message->started = now();
  if (message->direction == Direction::send) sent_to_.push_back(message->peer);
  try {
    // A message of no bytes is sent too: it holds its place in the channel.
    for_each_piece(message->bytes, largest_piece_, [&](std::int64_t offset, int bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      post_piece(*message, offset, bytes, request);
      requests_.push_back(request);
      pieces_.push_back(Piece{message, bytes});
      ++message->pieces_left;
    });
  } catch (const Error&) {
    message->failure = std::current_exception();
  }
  return message->pieces_left == 0;
}

/// Notes the end of one piece in its message.
void PostedMessages::settle(const Piece& piece, const MPI_Status& status, int error) {
  Message& message = *piece.message;
  --message.pieces_left;
  try {
    int cancelled = 0;
    check_mpi(error, fmt::format("a message with rank {}", message.peer));
    check_mpi(MPI_Test_cancelled(&status, &cancelled), "asking whether a receive was cancelled");
    require(cancelled == 0, "the transport was closed before the message from rank {} came", message.peer);
    if (message.direction == Direction::receive) check_received(status, piece.bytes, message.peer);
  } catch (const Error&) {
    if (!message.failure) message.failure = std::current_exception();
  }
}

/// MPI itself is broken: nothing will come of what is posted.
PostedMessages::Finished PostedMessages::fail_all(int error) {
  Finished finished;
  for (const Piece& piece : std::exchange(pieces_, {})) {
    settle(piece, MPI_Status{}, error);
    if (piece.message->pieces_left == 0) finished.push_back(piece.message);
  }
  requests_.clear();
  return finished;
}

PostedMessages::Finished PostedMessages::test() {
  Finished finished;
  if (requests_.empty()) return finished;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int status =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
  if (status != MPI_SUCCESS && status != MPI_ERR_IN_STATUS) return fail_all(status);
  if (count <= 0) return finished;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const Piece& piece = pieces_[static_cast<std::size_t>(indices_[i])];
    // MPI fills the error fields only when it says so.
    settle(piece, statuses_[i], status == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS);
    if (piece.message->pieces_left == 0) finished.push_back(piece.message);
  }
  remove_finished();
  return finished;
}

/// Keeps the order of the rest: MPI is asked about the oldest first.
void PostedMessages::remove_finished() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (kept != i) {
      requests_[kept] = requests_[i];
      pieces_[kept] = std::move(pieces_[i]);
    }
    ++kept;
  }
  requests_.resize(kept);
  pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(kept), pieces_.end());
}

void PostedMessages::cancel_receives() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (pieces_[i].message->direction == Direction::receive) MPI_Cancel(&requests_[i]);
  }
}

void PostedMessages::abandon() {
  if (requests_.empty()) return;
  log::warning("the transport is closed before its peers have taken {} of the pieces that it sends", requests_.size());
  for (auto& request : requests_) MPI_Request_free(&request);
  requests_.clear();
  pieces_.clear();
}

}  // namespace penstock
