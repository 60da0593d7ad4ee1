// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace penstock {

/// A receive that is posted now and finished later, so that its sender need not wait so long.
class PendingReceive {
 public:
  PendingReceive();  ///< of nothing
  PendingReceive(PendingReceive&&) noexcept;
  PendingReceive& operator=(PendingReceive&&) noexcept;
  ~PendingReceive();  ///< takes back what was not finished

  /// Blocks until the message is there. @throws Error if it has another length
  void finish();

 private:
  friend class Communicator;
  struct Pieces;
  explicit PendingReceive(std::unique_ptr<Pieces> pieces);
  std::unique_ptr<Pieces> pieces_;
};

/// A group of ranks with its own message space. Every blocking call waits by sleeping between tests, never by spinning,
/// so that many ranks can share a core. Calls are collective over the group unless said otherwise. Distinct
/// communicators may be used by distinct threads at the same time; one communicator by one thread at a time.
///
/// MPI stays private to `comm`: `native()` gives the MPI_Comm (as an opaque pointer-sized value) to the modules that
/// hand it to another library (parallel HDF5).
class Communicator {
 public:
  /// All ranks of the job; every call gives the same message space. @pre an MpiEnvironment lives.
  static Communicator world();
  /// This process alone; needs no peers (single-process commands and tests), nor, for all but native(), a running MPI.
  static Communicator self();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;
  int size() const;
  /// The same ranks with a message space of their own.
  Communicator duplicate() const;
  /// A duplicate that cuts messages into pieces of at most `largest` bytes (1 GiB unless said otherwise; MPI counts in
  /// 32 bits). Sender and receiver must cut alike.
  Communicator in_pieces(Bytes largest) const;
  /// Members with the same `color` (>= 0) form one new communicator, ordered by `key`.
  Communicator split(int color, int key) const;
  /// The members on one machine, which can share memory, in the order of their ranks. @pre MPI is running
  Communicator split_by_machine() const;

  void barrier() const;
  /// root's bytes to all.
  void broadcast(std::span<std::byte> data, int root) const;
  std::string broadcast(const std::string& text, int root) const;
  /// The strings (or byte blocks of any lengths) of all ranks, in rank order, on every rank.
  std::vector<std::string> all_gather(const std::string& text) const;
  std::vector<double> all_gather(double value) const;
  std::vector<std::int64_t> all_gather(std::int64_t value) const;
  /// Sums of int64 and extrema are exact in any order, so these may use MPI reductions; floating-point sums never do.
  std::int64_t sum(std::int64_t value) const;
  std::int64_t maximum(std::int64_t value) const;
  /// NaN if any rank has NaN.
  double maximum(double value) const;
  /// Point to point, not collective, to another rank. Blocks until the memory may be reused.
  /// @throws Error if the message received has another length.
  void send(std::span<const std::byte> data, int to, int tag) const;
  void receive(std::span<std::byte> data, int from, int tag) const;
  /// As receive, but does not block. `data` must outlive what is returned.
  PendingReceive start_receive(std::span<std::byte> data, int from, int tag) const;
  /// Both directions at once (an empty span: nothing in that direction; peers may be oneself): never deadlocks against
  /// a matching call.
  void exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from, int tag) const;

  /// The MPI_Comm, for parallel HDF5.
  void* native() const;

 private:
  struct Implementation;
  explicit Communicator(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace penstock
