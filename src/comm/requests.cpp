// SPDX-License-Identifier: Apache-2.0
#include "comm/requests.hpp"

#include "comm/backoff.hpp"
#include "comm/mpi_error.hpp"

namespace penstock {

Requests::~Requests() {
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

bool Requests::test() {
  if (requests_.empty()) return false;
  indices_.resize(requests_.size());
  int finished = 0;
  const auto count = static_cast<int>(requests_.size());
  check_mpi(MPI_Testsome(count, requests_.data(), &finished, indices_.data(), MPI_STATUSES_IGNORE), doing_);
  std::erase(requests_, MPI_REQUEST_NULL);
  return finished > 0;
}

bool Requests::wait(const std::atomic<bool>& stop) {
  Backoff backoff;
  while (!empty()) {
    if (stop.load()) return false;
    if (test()) backoff.reset();
    backoff.pause();
  }
  return true;
}

}  // namespace penstock
