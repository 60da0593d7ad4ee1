// SPDX-License-Identifier: Apache-2.0
#include "app/with_mpi.hpp"

#include <exception>

#include "app/agree.hpp"
#include "base/log.hpp"
#include "comm/environment.hpp"

namespace penstock {
namespace {

ExitCode end_of(const MpiEnvironment& environment, ExitCode code, const std::string& message) {
  log::error(message);
  if (environment.size() > 1) MpiEnvironment::abort(code);
  return code;
}

}  // namespace

ExitCode with_mpi(int* argc, char*** argv, const std::function<ExitCode(const Communicator&)>& command) {
  MpiEnvironment environment{argc, argv};
  const auto world = Communicator::world();
  try {
    return command(world);
  } catch (const AgreedError& error) {
    if (world.rank() == 0) log::error(error.what());
    return error.code();
  } catch (const Error& error) {
    return end_of(environment, error.code(), error.what());
  } catch (const std::exception& error) {
    return end_of(environment, ExitCode::internal, fmt::format("a fault of the program itself: {}", error.what()));
  }
}

}  // namespace penstock
