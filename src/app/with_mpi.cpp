// SPDX-License-Identifier: Apache-2.0
#include "app/with_mpi.hpp"

#include <exception>

#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "comm/environment.hpp"
#include "kernels/kernels.hpp"

namespace penstock {
namespace {

ExitCode end_of(const MpiEnvironment& environment, ExitCode code, const std::string& message) {
  log::error(message);
  if (environment.size() > 1) MpiEnvironment::abort(code);
  return code;
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
    return error.code();
  } catch (const Error& error) {
    return end_of(environment, error.code(), error.what());
  } catch (const std::exception& error) {
    return end_of(environment, ExitCode::internal, fmt::format("a fault of the program itself: {}", error.what()));
  }
}

}  // namespace penstock
