// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <mpi.h>

#include "base/units.hpp"
#include "comm/communicator.hpp"
#include "comm/message.hpp"

namespace penstock {

/// The messages that MPI has been given and has not finished, in pieces that fit MPI's 32-bit counts.
///
/// All pieces of a message have one tag; MPI keeps the order of what one rank sends to another under one tag, so the
/// n-th piece posted by the sender meets the n-th posted by the receiver.
class PostedMessages {
 public:
  using Finished = std::vector<std::shared_ptr<Message>>;

  PostedMessages(const Communicator& communicator, Bytes largest_piece);
  bool empty() const { return requests_.empty(); }
  /// Gives `message` to MPI, piece by piece. A refusal becomes its failure; it is then finished when the pieces before
  /// the refused one are, which is at once (the result is true) if there are none.
  bool post(const std::shared_ptr<Message>& message);
  /// Those that messages were sent to since the last call, perhaps several times.
  std::vector<int> take_peers_sent_to() { return std::exchange(sent_to_, {}); }
  /// Lets MPI progress and returns the messages that are finished, with or without a failure.
  Finished test();
  /// Takes back the receives that no message has met. They are returned by test(), with a failure.
  void cancel_receives();
  /// Forgets what is left: MPI completes it or not. The messages' events fail, as their completions are dropped.
  void abandon();

 private:
  struct Piece {
    std::shared_ptr<Message> message;
    int bytes;
  };
  void post_piece(Message& message, std::int64_t offset, int bytes, MPI_Request& request) const;
  static void settle(const Piece& piece, const MPI_Status& status, int error);
  Finished fail_all(int error);
  void remove_finished();

  MPI_Comm communicator_;
  std::int64_t largest_piece_;
  std::vector<MPI_Request> requests_;  // MPI_REQUEST_NULL once complete, until remove_finished()
  std::vector<Piece> pieces_;          // of the same indices
  std::vector<int> sent_to_;
  std::vector<int> indices_;  // scratch of test(), as is
  std::vector<MPI_Status> statuses_;
};

}  // namespace penstock
