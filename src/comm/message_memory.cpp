// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>
#include <pthread.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/backoff.hpp"
#include "comm/environment.hpp"
#include "comm/handles.hpp"
#include "comm/mpi_error.hpp"
#include "comm/pieces.hpp"
#include "comm/remote_memory.hpp"
#include "comm/requests.hpp"
#include "comm/signal.hpp"
#include "comm/version.hpp"

namespace penstock {
namespace {

/// How long the destructor waits for answers that nobody takes.
constexpr Seconds longest_wait_for_readers{1.0};

/// What a reader sends to an owner, as bytes: send so many bytes from `place` of your block, under `tag`, as soon as
/// the Version at `version_place` is at least `version`.
struct Request {
  std::int64_t version_place = 0;
  std::int64_t version = Version::none;
  std::int64_t place = 0;
  std::int64_t bytes = 0;
  std::int64_t tag = 0;
};

constexpr int request_tag = 0;
constexpr int answer_tags = 32767;  // as many as every MPI has: one for each request on its way

class MessageMemory final : public RemoteMemory {
 public:
  MessageMemory(const Communicator& group, std::span<const std::byte> own, Bytes largest_piece)
      : group_{group.duplicate()},
        handle_{handle_of(group_)},
        own_{own},
        largest_piece_{static_cast<std::size_t>(largest_piece.value)},
        thread_{[this] { run(); }} {}
  ~MessageMemory() override;

  bool wait_for(int owner, Bytes place, std::int64_t wanted, const std::atomic<bool>& stop) const override {
    return ask(owner, {.version_place = place.value, .version = wanted}, {}, stop);
  }
  bool read(int owner, Bytes place, std::span<std::byte> out, const std::atomic<bool>& stop) const override {
    return ask(owner, {.place = place.value, .bytes = static_cast<std::int64_t>(out.size())}, out, stop);
  }
  void notice_version() override { signal_.raise(); }

 private:
  struct Asked {
    int from;
    Request request;
  };
  bool ask(int owner, Request request, std::span<std::byte> out, const std::atomic<bool>& stop) const;

  void run() noexcept;
  void serve();
  void expect_request();
  bool take_requests();
  bool answer_what_can_be();
  void answer(const Asked& asked);
  void close();

  Communicator group_;
  MPI_Comm handle_;
  std::span<const std::byte> own_;
  std::size_t largest_piece_;
  int exceptions_before_ = std::uncaught_exceptions();
  mutable std::atomic<std::uint32_t> asked_{0};
  std::atomic<bool> is_closing_{false};
  Signal signal_;

  // What follows belongs to the thread that answers.
  Request next_;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
  std::vector<Asked> waiting_;  // for their version
  Requests answers_{"sending from memory that other nodes read"};
  std::thread thread_;
};

MessageMemory::~MessageMemory() {
  if (std::uncaught_exceptions() <= exceptions_before_) {
    try {
      group_.barrier();  // from here on nobody asks
    } catch (const Error& error) {
      log::warning("ending the reads of other nodes: {}", error.what());
    }
  }
  is_closing_.store(true);
  signal_.raise();
  thread_.join();
}

bool MessageMemory::ask(int owner, Request request, std::span<std::byte> out, const std::atomic<bool>& stop) const {
  constexpr std::string_view doing = "reading memory of another node";
  Requests requests{doing};
  const int tag = request_tag + 1 + static_cast<int>(asked_.fetch_add(1) % answer_tags);
  request.tag = tag;
  for_each_piece(out.size(), largest_piece_, [&](std::size_t offset, int bytes) {
    check_mpi(MPI_Irecv(out.data() + offset, bytes, MPI_BYTE, owner, tag, handle_, requests.add()), doing);
  });
  check_mpi(MPI_Isend(&request, sizeof request, MPI_BYTE, owner, request_tag, handle_, requests.add()), doing);
  return requests.wait(stop);
}

void MessageMemory::run() noexcept {
  pthread_setname_np(pthread_self(), "parameters");
  sharpen_sleeps();
  try {
    serve();
  } catch (const std::exception& error) {
    // The readers wait for answers that will not come.
    log::error(error.what());
    MpiEnvironment::abort(ExitCode::internal);
  }
}

void MessageMemory::serve() {
  Backoff backoff;
  expect_request();
  while (!is_closing_.load()) {
    const bool has_taken = take_requests();
    const bool has_answered = answer_what_can_be();
    const bool has_sent = answers_.test();
    if (has_taken || has_answered || has_sent) backoff.reset();
    const Seconds pause = backoff.next();
    if (pause.value > 0 && signal_.wait(pause)) backoff.reset();
  }
  close();
}

void MessageMemory::expect_request() {
  check_mpi(MPI_Irecv(&next_, sizeof next_, MPI_BYTE, MPI_ANY_SOURCE, request_tag, handle_, &receiving_),
            "waiting for readers of other nodes");
}

bool MessageMemory::take_requests() {
  const std::size_t before = waiting_.size();
  while (true) {
    int has_come = 0;
    MPI_Status status{};
    check_mpi(MPI_Test(&receiving_, &has_come, &status), "waiting for readers of other nodes");
    if (has_come == 0) return waiting_.size() > before;
    waiting_.push_back({status.MPI_SOURCE, next_});
    expect_request();
  }
}

bool MessageMemory::answer_what_can_be() {
  const auto answer_if_possible = [&](const Asked& asked) {
    const auto* version = reinterpret_cast<const Version*>(own_.data() + asked.request.version_place);
    if (asked.request.version != Version::none && std::launder(version)->get() < asked.request.version) return false;
    answer(asked);
    return true;
  };
  return std::erase_if(waiting_, answer_if_possible) > 0;
}

void MessageMemory::answer(const Asked& asked) {
  const std::byte* start = own_.data() + asked.request.place;
  for_each_piece(static_cast<std::size_t>(asked.request.bytes), largest_piece_, [&](std::size_t offset, int bytes) {
    check_mpi(MPI_Isend(start + offset, bytes, MPI_BYTE, asked.from, static_cast<int>(asked.request.tag), handle_,
                        answers_.add()),
              "sending from memory that other nodes read");
  });
}

/// Takes back the receive, and lets answers end: MPI reads the block until then.
void MessageMemory::close() {
  check_mpi(MPI_Cancel(&receiving_), "ending the reads of other nodes");
  Backoff backoff;
  int is_cancelled = 0;
  for (const Seconds start = now(); now() - start < longest_wait_for_readers; backoff.pause()) {
    if (is_cancelled == 0) MPI_Test(&receiving_, &is_cancelled, MPI_STATUS_IGNORE);
    answers_.test();
    if (is_cancelled != 0 && answers_.empty()) return;
  }
  log::warning("ending the reads of other nodes: some have not been taken by their readers");
}

}  // namespace

std::unique_ptr<RemoteMemory> make_message_memory(const Communicator& group, std::span<const std::byte> own,
                                                  Bytes largest_piece) {
  return std::make_unique<MessageMemory>(group, own, largest_piece);
}

}  // namespace penstock
