// SPDX-License-Identifier: Apache-2.0
#include "comm/environment.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <mpi.h>

#include "base/log.hpp"
#include "comm/backoff.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi_error.hpp"

#ifdef __SANITIZE_ADDRESS__
/// In builds with LeakSanitizer: keeps the plug-ins of Open MPI loaded to the end, so that what they never free is
/// reported with their names, by which tests/support/lsan.supp knows it. Takes the place of the C library's function.
extern "C" int dlclose(void* /*handle*/) {
  return 0;
}
#endif

namespace penstock {
namespace {

struct LibrarySetting {
  const char* name;
  const char* value;
};

/// Settings of Open MPI that many ranks on few cores need.
///
/// Messages between ranks of a node are copied through shared memory rather than out of the other process, which
/// containers often forbid. Our waits sleep between tests, so each test must find much to do: with pieces of 128 KiB,
/// 16 on their way, a message of 1 MiB between two ranks takes 0.16 ms, as fast as without the second copy; with the
/// library's own settings 2.5 ms.
constexpr LibrarySetting library_settings[] = {
    {"OMPI_MCA_mpi_yield_when_idle", "1"},
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
    {"OMPI_MCA_btl_vader_max_send_size", "131072"},
    {"OMPI_MCA_pml_ob1_send_pipeline_depth", "16"},
};

/// What the user has set, in the environment or by mpirun's options, stays.
void set_library_defaults() {
  constexpr int keep_what_is_set = 0;
  for (const auto& setting : library_settings) setenv(setting.name, setting.value, keep_what_is_set);
}

void start_library(int* argc, char*** argv) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "starting MPI");
  if (provided < MPI_THREAD_MULTIPLE) {
    fail(ExitCode::bad_input,
         "this MPI library supports thread level {} only, and Penstock's threads send and receive at the same time "
         "(MPI_THREAD_MULTIPLE, {}); use an MPI built with thread support, such as Debian's Open MPI",
         provided, MPI_THREAD_MULTIPLE);
  }
}

}  // namespace

bool is_first_of_job() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string_view{rank} == "0";
  }
  return true;
}

MpiEnvironment::MpiEnvironment(int* argc, char*** argv) {
  sharpen_sleeps();
  set_library_defaults();
  start_library(argc, argv);
  // Communicators made from these two inherit the handler.
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "setting the error handler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "setting the error handler");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "asking for the rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "asking for the number of ranks");
  log::set_process(rank_, rank_ == 0);
}

MpiEnvironment::~MpiEnvironment() {
  try {
    // MPI_Finalize waits for the other ranks by spinning: they are awaited asleep first.
    Communicator::world().barrier();
  } catch (const std::exception& error) {
    log::warning("ending MPI: {}", error.what());
  }
  if (const int status = MPI_Finalize(); status != MPI_SUCCESS) log::warning("ending MPI: {}", mpi_error_text(status));
}

void MpiEnvironment::abort(ExitCode code) {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

}  // namespace penstock
