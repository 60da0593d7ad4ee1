// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include <mpi.h>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "base/log.hpp"
#include "comm/backoff.hpp"
#include "comm/mpi_error.hpp"
#include "comm/pieces.hpp"

namespace penstock {
namespace {

struct CommunicatorTraits {
  using Handle = MPI_Comm;
  static Handle null() noexcept { return MPI_COMM_NULL; }
  static void close(Handle communicator) noexcept {
    if (const int status = MPI_Comm_free(&communicator); status != MPI_SUCCESS) {
      log::warning("freeing a communicator: {}", mpi_error_text(status));
    }
  }
};
using OwnedCommunicator = UniqueHandle<CommunicatorTraits>;

bool is_mpi_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

/// Tests `request` until it is complete, asleep in between.
void wait_asleep(MPI_Request request, std::string_view doing, MPI_Status* status = MPI_STATUS_IGNORE) {
  Backoff backoff;
  int complete = 0;
  while (true) {
    check_mpi(MPI_Test(&request, &complete, status), doing);
    if (complete != 0) return;
    backoff.pause();
  }
}

/// A piece of a message on its way.
struct Piece {
  MPI_Request request = MPI_REQUEST_NULL;
  int expected = -1;  // bytes of a receive; -1: a send
  int peer = 0;
};

void finish(std::vector<Piece>& pieces) {
  for (Piece& piece : pieces) {
    MPI_Status status{};
    MPI_Request request = std::exchange(piece.request, MPI_REQUEST_NULL);
    wait_asleep(request, piece.expected < 0 ? "sending" : "receiving", &status);
    if (piece.expected >= 0) check_received(status, piece.expected, piece.peer);
  }
  pieces.clear();
}

}  // namespace

struct Communicator::Implementation {
  MPI_Comm communicator = MPI_COMM_NULL;
  OwnedCommunicator owned;  // null for the library's own communicators
  int rank = 0;
  int size = 1;
  std::size_t largest_piece = std::size_t{1} << 30U;  // MPI counts are 32-bit signed

  static std::unique_ptr<Implementation> borrow(MPI_Comm handle) {
    auto made = std::make_unique<Implementation>();
    made->communicator = handle;
    check_mpi(MPI_Comm_rank(handle, &made->rank), "asking for the rank");
    check_mpi(MPI_Comm_size(handle, &made->size), "asking for the number of ranks");
    return made;
  }
  static std::unique_ptr<Implementation> own(MPI_Comm handle) {
    OwnedCommunicator owner{handle};
    auto made = borrow(handle);
    made->owned = std::move(owner);
    return made;
  }

  bool is_alone() const { return size == 1; }
  void check_peer(int peer, std::string_view doing) const;
  void broadcast(std::byte* data, std::size_t bytes, int root) const;
  std::vector<std::int64_t> gather_values(std::int64_t value) const;
  std::int64_t reduce(std::int64_t value, MPI_Op operation) const;
  void post_send(std::span<const std::byte> data, int to, int tag, std::vector<Piece>& pieces) const;
  void post_receive(std::span<std::byte> data, int from, int tag, std::vector<Piece>& pieces) const;
  void gather_in_one_call(const std::string& text, const std::vector<std::int64_t>& lengths,
                          std::vector<std::string>& texts) const;
};

void Communicator::Implementation::check_peer(int peer, std::string_view doing) const {
  require(peer >= 0 && peer < size, "{} rank {} of a group of {} ranks", doing, peer, size);
}

void Communicator::Implementation::broadcast(std::byte* data, std::size_t bytes, int root) const {
  check_peer(root, "broadcasting from");
  if (is_alone() || bytes == 0) return;
  for_each_piece(bytes, largest_piece, [&](std::size_t offset, int piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(data + offset, piece, MPI_BYTE, root, communicator, &request), "broadcasting");
    wait_asleep(request, "broadcasting");
  });
}

std::vector<std::int64_t> Communicator::Implementation::gather_values(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size), value);
  if (is_alone()) return values;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&value, 1, MPI_INT64_T, values.data(), 1, MPI_INT64_T, communicator, &request), "gathering");
  wait_asleep(request, "gathering");
  return values;
}

std::int64_t Communicator::Implementation::reduce(std::int64_t value, MPI_Op operation) const {
  if (is_alone()) return value;
  std::int64_t result = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(&value, &result, 1, MPI_INT64_T, operation, communicator, &request), "reducing");
  wait_asleep(request, "reducing");
  return result;
}

/// Fills `texts` by one call. @pre the sum of `lengths` is at most largest_piece.
void Communicator::Implementation::gather_in_one_call(const std::string& text, const std::vector<std::int64_t>& lengths,
                                                      std::vector<std::string>& texts) const {
  std::vector<int> counts;
  std::vector<int> offsets;
  int total = 0;
  for (const std::int64_t length : lengths) {
    counts.push_back(static_cast<int>(length));
    offsets.push_back(total);
    total += counts.back();
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgatherv(text.data(), static_cast<int>(text.size()), MPI_BYTE, all.data(), counts.data(),
                            offsets.data(), MPI_BYTE, communicator, &request),
            "gathering");
  wait_asleep(request, "gathering");
  for (std::size_t rank_index = 0; rank_index < texts.size(); ++rank_index) {
    texts[rank_index] =
        all.substr(static_cast<std::size_t>(offsets[rank_index]), static_cast<std::size_t>(counts[rank_index]));
  }
}

void Communicator::Implementation::post_send(std::span<const std::byte> data, int to, int tag,
                                             std::vector<Piece>& pieces) const {
  check_peer(to, "sending to");
  for_each_piece(data.size(), largest_piece, [&](std::size_t offset, int bytes) {
    Piece piece{.peer = to};
    check_mpi(MPI_Isend(data.data() + offset, bytes, MPI_BYTE, to, tag, communicator, &piece.request), "sending");
    pieces.push_back(piece);
  });
}

void Communicator::Implementation::post_receive(std::span<std::byte> data, int from, int tag,
                                                std::vector<Piece>& pieces) const {
  check_peer(from, "receiving from");
  for_each_piece(data.size(), largest_piece, [&](std::size_t offset, int bytes) {
    Piece piece{.expected = bytes, .peer = from};
    check_mpi(MPI_Irecv(data.data() + offset, bytes, MPI_BYTE, from, tag, communicator, &piece.request), "receiving");
    pieces.push_back(piece);
  });
}

struct PendingReceive::Pieces {
  std::vector<Piece> pieces;

  Pieces() = default;
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  ~Pieces() {
    for (Piece& piece : pieces) {
      if (piece.request == MPI_REQUEST_NULL) continue;
      int status = MPI_Cancel(&piece.request);
      if (status == MPI_SUCCESS) status = MPI_Wait(&piece.request, MPI_STATUS_IGNORE);
      if (status != MPI_SUCCESS) log::warning("taking back a receive: {}", mpi_error_text(status));
    }
  }
};

PendingReceive::PendingReceive() = default;
PendingReceive::PendingReceive(std::unique_ptr<Pieces> pieces) : pieces_{std::move(pieces)} {}
PendingReceive::PendingReceive(PendingReceive&&) noexcept = default;
PendingReceive& PendingReceive::operator=(PendingReceive&&) noexcept = default;
PendingReceive::~PendingReceive() = default;

void PendingReceive::finish() {
  if (pieces_) penstock::finish(pieces_->pieces);
}

Communicator::Communicator(std::unique_ptr<Implementation> implementation)
    : implementation_{std::move(implementation)} {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::world() {
  require(is_mpi_running(), "the communicator of all ranks was asked for while MPI is not running");
  return Communicator{Implementation::borrow(MPI_COMM_WORLD)};
}

Communicator Communicator::self() {
  if (!is_mpi_running()) return Communicator{std::make_unique<Implementation>()};
  return Communicator{Implementation::borrow(MPI_COMM_SELF)};
}

int Communicator::rank() const {
  return implementation_->rank;
}
int Communicator::size() const {
  return implementation_->size;
}

Communicator Communicator::duplicate() const {
  return in_pieces(Bytes{static_cast<std::int64_t>(implementation_->largest_piece)});
}

Communicator Communicator::in_pieces(Bytes largest) const {
  require(largest.value >= 1 && largest.value <= std::int64_t{1} << 30U, "messages in pieces of {} bytes",
          largest.value);
  std::unique_ptr<Implementation> made;
  if (implementation_->communicator == MPI_COMM_NULL) {
    made = std::make_unique<Implementation>();
  } else {
    MPI_Comm handle = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Comm_idup(implementation_->communicator, &handle, &request), "duplicating a communicator");
    wait_asleep(request, "duplicating a communicator");
    made = Implementation::own(handle);
  }
  made->largest_piece = static_cast<std::size_t>(largest.value);
  return Communicator{std::move(made)};
}

Communicator Communicator::split(int color, int key) const {
  require(color >= 0, "splitting a communicator by the negative color {}", color);
  if (implementation_->communicator == MPI_COMM_NULL) return duplicate();
  barrier();  // MPI_Comm_split waits for the other ranks by spinning: they are awaited asleep first
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(implementation_->communicator, color, key, &handle), "splitting a communicator");
  auto made = Implementation::own(handle);
  made->largest_piece = implementation_->largest_piece;
  return Communicator{std::move(made)};
}

Communicator Communicator::split_by_machine() const {
  barrier();  // as in split
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(implementation_->communicator, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &handle),
            "finding the ranks of a machine");
  auto made = Implementation::own(handle);
  made->largest_piece = implementation_->largest_piece;
  return Communicator{std::move(made)};
}

void Communicator::barrier() const {
  if (implementation_->is_alone()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(implementation_->communicator, &request), "waiting for all ranks");
  wait_asleep(request, "waiting for all ranks");
}

void Communicator::broadcast(std::span<std::byte> data, int root) const {
  implementation_->broadcast(data.data(), data.size(), root);
}

std::string Communicator::broadcast(const std::string& text, int root) const {
  auto length = static_cast<std::int64_t>(text.size());
  implementation_->broadcast(reinterpret_cast<std::byte*>(&length), sizeof length, root);
  std::string result = rank() == root ? text : std::string(static_cast<std::size_t>(length), '\0');
  implementation_->broadcast(reinterpret_cast<std::byte*>(result.data()), result.size(), root);
  return result;
}

std::vector<std::string> Communicator::all_gather(const std::string& text) const {
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  if (implementation_->is_alone()) {
    texts[0] = text;
    return texts;
  }
  const auto lengths = implementation_->gather_values(static_cast<std::int64_t>(text.size()));
  const double total = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  if (total <= static_cast<double>(implementation_->largest_piece)) {
    implementation_->gather_in_one_call(text, lengths, texts);
  } else {
    for (int root = 0; root < size(); ++root) texts[static_cast<std::size_t>(root)] = broadcast(text, root);
  }
  return texts;
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  return implementation_->gather_values(value);
}

std::vector<double> Communicator::all_gather(double value) const {
  std::vector<double> values;
  for (const std::int64_t bits : implementation_->gather_values(std::bit_cast<std::int64_t>(value))) {
    values.push_back(std::bit_cast<double>(bits));
  }
  return values;
}

std::int64_t Communicator::sum(std::int64_t value) const {
  return implementation_->reduce(value, MPI_SUM);
}

std::int64_t Communicator::maximum(std::int64_t value) const {
  return implementation_->reduce(value, MPI_MAX);
}

double Communicator::maximum(double value) const {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double other : all_gather(value)) {
    if (std::isnan(other)) return other;
    largest = std::max(largest, other);
  }
  return largest;
}

void Communicator::send(std::span<const std::byte> data, int to, int tag) const {
  require(to != rank(), "a blocking send to oneself would never end; exchange does both directions at once");
  std::vector<Piece> pieces;
  implementation_->post_send(data, to, tag, pieces);
  finish(pieces);
}

void Communicator::receive(std::span<std::byte> data, int from, int tag) const {
  require(from != rank(), "a blocking receive from oneself would never end; exchange does both directions at once");
  std::vector<Piece> pieces;
  implementation_->post_receive(data, from, tag, pieces);
  finish(pieces);
}

PendingReceive Communicator::start_receive(std::span<std::byte> data, int from, int tag) const {
  require(from != rank(), "a receive from oneself, which nobody would send; exchange does both directions at once");
  auto pieces = std::make_unique<PendingReceive::Pieces>();
  implementation_->post_receive(data, from, tag, pieces->pieces);
  return PendingReceive{std::move(pieces)};
}

void Communicator::exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from, int tag) const {
  if (implementation_->communicator == MPI_COMM_NULL) {
    require(out.size() == in.size(), "exchanging {} bytes for {} bytes with oneself", out.size(), in.size());
    std::copy(out.begin(), out.end(), in.begin());
    return;
  }
  std::vector<Piece> pieces;
  if (!in.empty()) implementation_->post_receive(in, from, tag, pieces);
  if (!out.empty()) implementation_->post_send(out, to, tag, pieces);
  finish(pieces);
}

void* Communicator::native() const {
  require(implementation_->communicator != MPI_COMM_NULL,
          "a communicator was asked for MPI's handle while MPI is not running");
  static_assert(sizeof(MPI_Comm) <= sizeof(void*));
  void* handle = nullptr;
  std::memcpy(&handle, &implementation_->communicator, sizeof(MPI_Comm));
  return handle;
}

}  // namespace penstock
