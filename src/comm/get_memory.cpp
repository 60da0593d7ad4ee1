// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include <mpi.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "comm/backoff.hpp"
#include "comm/handles.hpp"
#include "comm/mpi_error.hpp"
#include "comm/pieces.hpp"
#include "comm/remote_memory.hpp"
#include "comm/requests.hpp"
#include "comm/version.hpp"

namespace penstock {
namespace {

// Decision 0012 says where windows exist.
constexpr std::string_view what_needs_no_windows =
    "use memory.fetch: message, or, where all ranks run on one machine that lets processes read each other's memory, "
    "set "
    "OMPI_MCA_btl_vader_single_copy_mechanism=cma in the environment";

// The probe: for how long all but the reader stay out of MPI, when in that time it begins, and how long it may take.
constexpr Seconds idle_time{1.0};
constexpr Seconds quiet_before{0.1};
constexpr Seconds longest_probe{0.6};

void sleep_for(Seconds seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>{seconds.value});
}

class GetMemory final : public RemoteMemory {
 public:
  GetMemory(const Communicator& group, std::span<std::byte> own, Bytes largest_piece);
  ~GetMemory() override;

  bool wait_for(int owner, Bytes place, std::int64_t wanted, const std::atomic<bool>& stop) const override;
  bool read(int owner, Bytes place, std::span<std::byte> out, const std::atomic<bool>& stop) const override;
  void notice_version() override {}

 private:
  void create(std::span<std::byte> own);
  void close();
  void probe(Bytes own) const;
  bool answers_while_idle(int target) const;
  void get(int owner, std::int64_t place, std::span<std::byte> out, Requests& requests) const;

  Communicator group_;
  std::size_t largest_piece_;
  int exceptions_before_ = std::uncaught_exceptions();
  OwnedWindow window_;
};

GetMemory::GetMemory(const Communicator& group, std::span<std::byte> own, Bytes largest_piece)
    : group_{group.duplicate()}, largest_piece_{static_cast<std::size_t>(largest_piece.value)} {
  try {
    jointly(group_, [&] { create(own); });
  } catch (const Error&) {
    window_.release();  // others may have none, and to free it they would be needed
    throw;
  }
  try {
    probe(Bytes{static_cast<std::int64_t>(own.size())});
  } catch (const Error&) {
    close();
    throw;
  }
}

GetMemory::~GetMemory() {
  if (std::uncaught_exceptions() > exceptions_before_) {
    window_.release();
    return;
  }
  try {
    group_.barrier();  // freeing a window waits for the others by spinning: they are awaited asleep first
  } catch (const Error& error) {
    log::warning("ending the reads of other nodes: {}", error.what());
  }
  close();
}

void GetMemory::create(std::span<std::byte> own) {
  MPI_Win window = MPI_WIN_NULL;
  constexpr int displacement_unit = 1;
  const int status = MPI_Win_create(own.data(), static_cast<MPI_Aint>(own.size()), displacement_unit, MPI_INFO_NULL,
                                    handle_of(group_), &window);
  if (status != MPI_SUCCESS) {
    fail(
        ExitCode::bad_input,
        "memory.fetch: get: this MPI gives programs of several threads no windows of memory over this network ({}); {}",
        mpi_error_text(status), what_needs_no_windows);
  }
  window_.reset(window);
  check_mpi(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN), "setting the error handler of a window");
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "opening a window of memory");
}

void GetMemory::close() {
  if (const int status = MPI_Win_unlock_all(window_.get()); status != MPI_SUCCESS) {
    log::warning("closing a window of memory: {}", mpi_error_text(status));
  }
  window_.reset();
}

/// A rank gets from the first that has something, while that one stays out of MPI. The reader is on another machine, if
/// there is one.
void GetMemory::probe(Bytes own) const {
  const auto machine = group_.split_by_machine();
  const auto first_of_machine = group_.all_gather(-machine.maximum(std::int64_t{-group_.rank()}));
  const auto sizes = group_.all_gather(own.value);
  const auto has_some = std::find_if(sizes.begin(), sizes.end(), [](auto size) { return size > 0; });
  if (has_some == sizes.end() || sizes.size() < 2) return;
  const auto target = has_some - sizes.begin();
  const auto is_elsewhere = [&](auto first) { return first != first_of_machine[static_cast<std::size_t>(target)]; };
  const auto elsewhere = std::find_if(first_of_machine.begin(), first_of_machine.end(), is_elsewhere);
  const auto neighbour = target == 0 ? 1 : 0;
  const auto reader = elsewhere == first_of_machine.end() ? neighbour : elsewhere - first_of_machine.begin();
  group_.barrier();
  bool is_answered = true;
  if (group_.rank() == reader) {
    is_answered = answers_while_idle(static_cast<int>(target));
  } else {
    sleep_for(idle_time);
  }
  jointly(group_, [&] {
    if (is_answered) return;
    fail(ExitCode::bad_input,
         "memory.fetch: get: a read of the memory of rank {} was not over after {} s, in which that rank did not enter "
         "MPI: with this MPI and network it waits for it; {}",
         target, longest_probe.value, what_needs_no_windows);
  });
}

bool GetMemory::answers_while_idle(int target) const {
  std::byte read{};
  Requests requests{"reading memory of another node"};
  sleep_for(quiet_before);
  const Seconds start = now();
  get(target, 0, {&read, 1}, requests);
  const std::atomic<bool> never{false};
  requests.wait(never);
  return now() - start < longest_probe;
}

void GetMemory::get(int owner, std::int64_t place, std::span<std::byte> out, Requests& requests) const {
  for_each_piece(out.size(), largest_piece_, [&](std::size_t offset, int bytes) {
    check_mpi(MPI_Rget(out.data() + offset, bytes, MPI_BYTE, owner, place + static_cast<MPI_Aint>(offset), bytes,
                       MPI_BYTE, window_.get(), requests.add()),
              "reading memory of another node");
  });
}

bool GetMemory::read(int owner, Bytes place, std::span<std::byte> out, const std::atomic<bool>& stop) const {
  Requests requests{"reading memory of another node"};
  get(owner, place.value, out, requests);
  return requests.wait(stop);
}

bool GetMemory::wait_for(int owner, Bytes place, std::int64_t wanted, const std::atomic<bool>& stop) const {
  Backoff backoff;
  std::array<std::byte, sizeof(std::int64_t)> number{};
  while (read(owner, place + Version::number_place, number, stop)) {
    if (std::bit_cast<std::int64_t>(number) >= wanted) return true;
    backoff.pause();
  }
  return false;
}

}  // namespace

std::unique_ptr<RemoteMemory> make_get_memory(const Communicator& group, std::span<std::byte> own,
                                              Bytes largest_piece) {
  return std::make_unique<GetMemory>(group, own, largest_piece);
}

}  // namespace penstock
