// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting.hpp"

#include "comm/backoff.hpp"
#include "comm/handles.hpp"
#include "comm/mpi_error.hpp"
#include "comm/requests.hpp"

namespace penstock {

Meeting::Meeting(const Communicator& group) : group_{group.duplicate()}, bells_{group_} {}

void Meeting::wait_for(const std::vector<Rank>& ranks) {
  constexpr int tag = 0;
  MPI_Comm communicator = handle_of(group_);
  Requests words{"waiting for ranks to meet"};
  for (const Rank rank : ranks) {
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, rank.value(), tag, communicator, words.add()), "hearing of a rank");
  }
  for (const Rank rank : ranks) {
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, rank.value(), tag, communicator, words.add()), "telling a rank");
    bells_.ring(rank.value());
  }
  Backoff backoff;
  while (!words.empty()) {
    if (words.test()) {
      backoff.reset();
    } else {
      bells_.pause(backoff);
    }
  }
}

}  // namespace penstock
