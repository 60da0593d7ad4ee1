// SPDX-License-Identifier: Apache-2.0
#include "app/with_mpi.hpp"

#include <exception>

#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "comm/environment.hpp"
#include "kernels/kernels.hpp"
#include "trace/failed_close.hpp"

namespace penstock {
namespace {

ExitCode end_of(const MpiEnvironment& environment, ExitCode code, const std::string& message) {
  log::error(message);
  if (environment.size() > 1) MpiEnvironment::abort(code);
  return code;
}

/// The end of MPI lets HDF5 close its files. One that it could not close before, as where memory is used up, would then
/// crash the rank: that rank ends the job instead, once all have come to their end and rank 0 has said why.
void end_without_hdf5(const Communicator& world, ExitCode code) {
  if (!hdf5::has_failed_to_close()) return;
  world.barrier();  // the others wait in the destructor of their MpiEnvironment
  MpiEnvironment::abort(code);
}

/// Bits are promised per instruction set: ranks on different processors take the lowest of all.
void agree_on_instruction_set(const Communicator& world) {
  const auto own = static_cast<std::int64_t>(host_instruction_set());
  const auto lowest = -world.maximum(-own);
  if (lowest == world.maximum(own)) return;
  limit_host_instruction_set(static_cast<InstructionSet>(lowest));
  log::note("the ranks' processors differ: all use {}", name_of(static_cast<InstructionSet>(lowest)));
}

}  // namespace

ExitCode with_mpi(int* argc, char*** argv, const std::function<ExitCode(const Communicator&)>& command) {
  MpiEnvironment environment{argc, argv};
  const auto world = Communicator::world();
  try {
    agree_on_instruction_set(world);
    return command(world);
  } catch (const AgreedError& error) {
    if (world.rank() == 0) log::common_error(error.what());
    end_without_hdf5(world, error.code());
    return error.code();
  } catch (const Error& error) {
    return end_of(environment, error.code(), error.what());
  } catch (const std::exception& error) {
    const auto [code, message] = outcome_of(error);
    const bool is_fault = code == ExitCode::internal;
    return end_of(environment, code, (is_fault ? "a fault of the program itself: " : "") + message);
  }
}

}  // namespace penstock
